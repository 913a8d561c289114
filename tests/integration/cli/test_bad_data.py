"""Task files and data that people get wrong: one clear line with the place and the remedy, no
more."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.refusals import refused
from tests.support.small_csv import TASK, csv_lines
from tests.support.small_study import TASK_TOML, write_files
from tuner.cli.main import main
from tuner.data import cache as data_cache

LAUNCH = ("launch", "--task", "demo", "--cpu", "--variant", "rmsnorm")
CSV_TASK = TASK.replace("small", "mine")
ROWS = csv_lines(60)
"""Header and 60 rows: element n - 1 is row n of the file."""


def bent(row: int, text: str) -> str:
    lines = list(ROWS)
    lines[row - 1] = text
    return "\n".join(lines)


PLAIN = "\n".join(ROWS)
CSV: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("mine.csv", "empty", "header")),
    "only a header": ("ds,a,b\n", ("mine.csv", "header", "no rows")),
    "missing column": (
        PLAIN.replace("ds,a,b", "ds,a,c"),
        ("mine.csv, row 1", "missing column 'b'", "'c'"),
    ),
    "shorter than a window": (
        "\n".join(ROWS[:20]),
        ("mine.csv", "19 rows, needed are 38", "more rows"),
    ),
    "NaN": (
        bent(12, "2024-01-01 10:00:00,1,NaN"),
        ("mine.csv, row 12, column 'b'", "'NaN'", "finite"),
    ),
    "inf": (
        bent(13, "2024-01-01 11:00:00,-inf,1"),
        ("mine.csv, row 13, column 'a'", "'-inf'", "finite"),
    ),
    "text": (
        bent(14, "2024-01-01 12:00:00,high,1"),
        ("mine.csv, row 14, column 'a'", "'high'", "finite"),
    ),
    "unsorted": (
        "\n".join([*ROWS[:9], ROWS[10], ROWS[9], *ROWS[11:]]),
        ("mine.csv, row 11, column 'ds'", "unsorted", "sort the rows"),
    ),
    "duplicate": (
        bent(8, "2024-01-01 05:00:00,1,1"),
        ("mine.csv, row 8, column 'ds'", "duplicate", "in row 7"),
    ),
    "gap": ("\n".join([*ROWS[:20], *ROWS[22:]]), ("mine.csv, row 21", "gap", "missing rows")),
    "semicolons and decimal commas": (
        PLAIN.replace(",", ";").replace(".5", ",5"),
        ("mine.csv", "separator = ';'", "decimal = ','"),
    ),
}


@pytest.mark.parametrize("mistake", CSV)
def test_a_csv_that_cannot_be_used_is_one_line(mistake: str, tmp_path: Path) -> None:
    content, says = CSV[mistake]
    (tmp_path / "mine.csv").write_text(content, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=1, says=says)


def test_a_csv_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CSV_TASK, encoding="utf-8")
    refused(
        *LAUNCH,
        "--task",
        "mine.toml",
        folder=tmp_path,
        code=1,
        says=("mine.csv", "no such file", "'path'"),
    )


def test_a_wrong_task_file_is_one_line_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TASK_TOML.replace("horizon", "horizont"), encoding="utf-8")
    says = ("mine.toml, line 6", "'horizont'", "did you mean 'horizon'")
    refused(*LAUNCH, "--task", "mine.toml", folder=tmp_path, code=2, says=says)


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


def test_a_data_folder_without_the_files_is_one_line(tmp_path: Path) -> None:
    refused(
        *("launch", "--cpu", "--variant", "rmsnorm", "--data-dir", "."),
        folder=tmp_path,
        code=1,
        says=("ETTh1.csv", "no such file", "--data-dir", "tuner data fetch etth"),
    )
