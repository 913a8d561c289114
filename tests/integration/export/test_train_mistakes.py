"""`tuner train` told something wrong: one line, and no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded_studies import RecordedDatabase
from tests.support.refusals import refused
from tuner.export import load_best, render

STUDY = ("--variant", "rmsnorm", "--task", "demo")


@pytest.fixture(scope="module")
def folder(recorded_database: RecordedDatabase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, and its best configuration as a file."""
    folder = tmp_path_factory.mktemp("mistakes")
    recorded_database.copied_into(folder)
    best = load_best("rmsnorm", task="demo", trial=0, storage=recorded_database.url)
    (folder / "best.toml").write_text(render(best, "toml"), encoding="utf-8")
    return folder


MISTAKES: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "a backend of GPUs": (
        ("--config", "best.toml", "--backend", "graph", "--output", "m.safetensors"),
        2,
        ("backend 'graph' needs a CUDA device", "use eager or auto"),
    ),
    "nothing to train": (
        ("--output", "m.safetensors"),
        2,
        ("--config FILE.toml", "--variant NAME"),
    ),
    "two things to train": (
        ("--config", "best.toml", "--variant", "rmsnorm", "--output", "m.safetensors"),
        2,
        ("either --config",),
    ),
    "what chooses beside what is chosen": (
        ("--config", "best.toml", "--margin", "5%", "--output", "m.safetensors"),
        2,
        ("--margin chooses", "--config names one"),
    ),
    "a pick beside what is chosen": (
        ("--config", "best.toml", "--pick", "time", "--output", "m.safetensors"),
        2,
        ("--pick chooses",),
    ),
    "two kinds of seeds": (
        (*STUDY, "--seed", "1", "--seeds", "2", "--output", "m.safetensors"),
        2,
        ("exclude",),
    ),
    "another suffix": ((*STUDY, "--output", "model.pt"), 2, ("model.pt", "ends in .safetensors")),
    "no such folder": ((*STUDY, "--output", "nowhere/m.safetensors"), 2, ("nowhere", "create it")),
    "no such file": (
        ("--config", "bset.toml", "--output", "m.safetensors"),
        2,
        ("bset.toml", "no such file"),
    ),
    "a wrong key": (
        ("--config", "wrong.toml", "--output", "m.safetensors"),
        2,
        ("wrong.toml, line", "batchsize", "batch_size"),
    ),
    "a task of one's own": (
        ("--config", "own.toml", "--output", "m.safetensors"),
        2,
        ("task bakery", "none of the built-in ones", "its task file with --task FILE"),
    ),
    "no such trial": (
        (*STUDY, "--trial", "77", "--output", "m.safetensors"),
        2,
        ("no trial 77", "nearest"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(mistake: str, folder: Path) -> None:
    best = (folder / "best.toml").read_text(encoding="utf-8")
    (folder / "wrong.toml").write_text(best.replace("batch_size", "batchsize"), encoding="utf-8")
    own = best.replace('task = "demo"', 'task = "bakery"')
    assert own != best
    (folder / "own.toml").write_text(own, encoding="utf-8")
    arguments, code, says = MISTAKES[mistake]
    refused("train", "--cpu", *arguments, folder=folder, code=code, says=says)
