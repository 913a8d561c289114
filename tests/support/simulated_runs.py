"""The simulated oscillator of benchmarks/tcn_physics, small enough for tests."""

from __future__ import annotations

from pathlib import Path

from benchmarks.tcn_physics.simulate import simulate
from tests.support.paths import REPOSITORY
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task

PHYSICS = REPOSITORY / "studies" / "physics"


def small_runs(folder: Path, *, runs: int = 10, rows: int = 40, noise: float = 0.05) -> Path:
    """The task file, beside its folders: 8 rows in, 6 out; six files to train on."""
    return simulate(folder, runs=runs, rows=rows, noise=noise, input_size=8, horizon=6)


def small_study(folder: Path, *, epochs: int = 2) -> Path:
    """The study of studies/physics, of a tiny network."""
    text = (PHYSICS / "tcn-physics.toml").read_text(encoding="utf-8")
    for old, new in (
        ('"tcn.py:TCN"', f'"{PHYSICS}/tcn.py:TCN"'),
        ('"oscillator.py:Motion"', f'"{PHYSICS}/oscillator.py:Motion"'),
        ("levels = 4 ", "levels = 1 "),
        ("max_epochs = 100", f"max_epochs = {epochs}"),
        ("hidden_size = 32", "hidden_size = 4"),
        ("low = 16\nhigh = 64", "low = 4\nhigh = 8"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "small-physics.toml"
    path.write_text(text, encoding="utf-8")
    return path


def changed(path: Path, *changes: tuple[str, str]) -> Path:
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


def prepared_of(path: Path, tmp_path: Path, data_dir: Path | None = None) -> PreparedData:
    return prepare(load_task(str(path)), cache_dir=tmp_path / "cache", data_dir=data_dir)
