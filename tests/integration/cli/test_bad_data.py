"""Task files and data that people get wrong: one clear line with the place and the remedy, no
more."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.small_csv import TASK, csv_lines
from tests.support.small_study import write_files
from tuner.cli.main import main
from tuner.data import sources as data_cache

CSV_TASK = TASK.replace("small", "mine")
ROWS = csv_lines(60)
"""Header and 60 rows: element n - 1 is row n of the file."""


def test_a_constant_column_works(tmp_path: Path) -> None:
    study, _ = write_files(tmp_path)
    content = [ROWS[0], *(f"{line.rsplit(',', 1)[0]},4.0" for line in ROWS[1:])]
    (tmp_path / "mine.csv").write_text("\n".join(content), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    launch = (
        "launch",
        "--cpu",
        "--variant",
        study.name,
        "--task",
        "mine.toml",
        "--trials",
        "1",
        "--max-epochs",
        "1",
    )
    done = run(*launch, folder=tmp_path)
    assert done.code == 0, done.err
    (following,) = [line for line in done.out.splitlines() if line.startswith("Next: tuner ")]
    suggested = following.split("|")[0].split()[
        2:
    ]  # what it says comes next is a command that works
    best = run(*suggested, "--json", folder=tmp_path)
    assert best.code == 0, best.err
    assert '"val_mql": ' in best.out


def test_etth_without_a_network_fails_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The network here is a proxy that takes the connection and never answers: the slowest way to
    have none. Of the seconds it may take this waits for a part of one."""
    assert data_cache.SILENCE_S <= 10
    monkeypatch.setattr(urllib.request, "_opener", None)  # another test may have made one
    monkeypatch.setattr(data_cache, "SILENCE_S", 0.25)
    cache, work = tmp_path / "cache", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("TUNER_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(SystemExit) as ended:
            main(["launch", "--cpu", "--variant", "rmsnorm"])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [each for each in said.err.splitlines() if "tuner: error: " in each]
    for words in ("ETTh1.csv", "could not be downloaded", "--data-dir", "TUNER_DATA_DIR"):
        assert words in line
    assert "timed out" in line  # by itself: nobody else ends it
    assert "Traceback" not in said.err
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    assert list(work.iterdir()) == []
