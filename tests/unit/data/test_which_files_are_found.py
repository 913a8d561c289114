"""Which files a pattern finds: whatever stands in a path, in a name, or in a folder."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.simulated_runs import changed, prepared_of
from tuner.data.sources import open_source
from tuner.data.task import load_task
from tuner.errors import DataError, UsageError


def test_a_bracket_in_a_path_is_a_bracket(task_of_runs: Path, tmp_path: Path) -> None:
    folder = task_of_runs.parent.rename(tmp_path / "runs [1]")
    assert prepared_of(folder / task_of_runs.name, tmp_path).series == ("oscillator",)
    one = changed(
        folder / task_of_runs.name,
        ("data_simulation_*/series.csv", "data [1].csv"),
        ('runs = "by_file" ', ""),
        ("input_size = 8", "input_size = 3"),
        ("horizon = 6", "horizon = 2"),
    )
    shutil.copy(folder / "data_simulation_000/series.csv", folder / "data [1].csv")
    assert len(prepared_of(one, tmp_path).train.targets) == 24


def test_a_wildcard_in_the_folder_of_the_task_is_a_letter(
    task_of_runs: Path, tmp_path: Path
) -> None:
    folder = task_of_runs.parent.rename(tmp_path / "a*")
    shutil.copytree(folder, tmp_path / "ab")
    here = prepared_of(folder / task_of_runs.name, tmp_path)
    assert here.series == ("oscillator",)
    assert here.data_hash == prepared_of(tmp_path / "ab" / task_of_runs.name, tmp_path).data_hash


def test_what_is_there_twice_is_not_trained_on_and_forecast(
    task_of_runs: Path, tmp_path: Path
) -> None:
    copy = task_of_runs.parent / "data_simulation_copy"
    shutil.copytree(task_of_runs.parent / "data_simulation_003", copy)
    said = (
        r"data_simulation_003/series.csv and data_simulation_copy/series.csv hold the same values"
    )
    with pytest.raises(DataError, match=said):
        prepared_of(task_of_runs, tmp_path)
    shutil.rmtree(copy)
    copy.symlink_to("data_simulation_003")
    with pytest.raises(DataError, match=said):
        prepared_of(task_of_runs, tmp_path)
    changed(task_of_runs, ('"by_file"', '"by_time"'), ("= 8", "= 3"), ("= 6", "= 2"))
    assert len(open_source(load_task(str(task_of_runs)), None).parse()) == 11


def test_what_is_hidden_is_left_alone(task_of_runs: Path, tmp_path: Path) -> None:
    before = prepared_of(task_of_runs, tmp_path).data_hash
    changed(task_of_runs, ("data_simulation_*/series.csv", "*/*.csv"))
    same = prepared_of(task_of_runs, tmp_path)
    for name in (".trash", "data_simulation_001/.trash"):
        (task_of_runs.parent / name).mkdir()
    for name in (".trash/series.csv", "data_simulation_000/._series.csv"):
        (task_of_runs.parent / name).write_text("rubbish")
    assert prepared_of(task_of_runs, tmp_path).data_hash == same.data_hash == before


def test_any_depth_is_looked_through_and_a_circle_of_links_is_none(
    task_of_runs: Path, tmp_path: Path
) -> None:
    files = len(open_source(load_task(str(task_of_runs)), None).parse())
    deep = task_of_runs.parent / "deep" / "er"
    deep.mkdir(parents=True)
    (task_of_runs.parent / "data_simulation_004").rename(deep / "data_simulation_004")
    (deep / "round").symlink_to(task_of_runs.parent)
    changed(task_of_runs, ("data_simulation_*/series.csv", "**/series.csv"))
    names = [one.name for one in open_source(load_task(str(task_of_runs)), None).parse()]
    assert len(names) == files
    assert "deep/er/data_simulation_004/series.csv" in names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            b"data_simulation_\xff",
            r"the name 'data_simulation_\\udcff' in .* is no text; rename it",
        ),
        (b"data_simulation_\x1b[31m", r"the name 'data_simulation_\\x1b\[31m' in .* is no text"),
    ],
)
def test_a_name_that_cannot_be_shown_is_refused(task_of_runs: Path, name: bytes, said: str) -> None:
    (task_of_runs.parent / os.fsdecode(name)).mkdir()
    with pytest.raises(DataError, match=said):
        open_source(load_task(str(task_of_runs)), None)


def test_a_folder_where_a_file_is_expected_is_refused(task_of_runs: Path) -> None:
    (task_of_runs.parent / "data_simulation_999" / "series.csv").mkdir(parents=True)
    with pytest.raises(DataError, match=r"series\.csv is no regular file; leave it out"):
        open_source(load_task(str(task_of_runs)), None)


def test_what_is_no_file_is_refused_and_not_waited_for(task_of_runs: Path) -> None:
    os.mkfifo(task_of_runs.parent / "data_simulation_000" / "other.csv")
    changed(task_of_runs, ("series.csv", "*.csv"))
    with pytest.raises(DataError, match=r"other\.csv is no regular file; leave it out"):
        open_source(load_task(str(task_of_runs)), None)


def test_a_folder_that_cannot_be_read_is_not_left_out(
    task_of_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this may be allowed to read everything."""
    listed = Path.iterdir

    def refused(folder: Path) -> Iterator[Path]:
        if folder.name == "data_simulation_002":
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", refused)
    changed(task_of_runs, ("series.csv", "s*.csv"))
    with pytest.raises(DataError, match=r"data_simulation_002: cannot be read \(Permission denied"):
        open_source(load_task(str(task_of_runs)), None)


@pytest.mark.parametrize(
    "pattern",
    [
        "data_**/series.csv",
        "**/a/**/series.csv",
        "runs/**",
        "*/../*/series.csv",
    ],
)
def test_a_pattern_that_is_none_is_refused(task_of_runs: Path, pattern: str) -> None:
    said = r"\*\* stands once, by itself, and not last, and '\.\.' not after a wildcard"
    with pytest.raises(UsageError, match=said) as caught:
        load_task(str(changed(task_of_runs, ("data_simulation_*/series.csv", pattern))))
    assert "\n" not in str(caught.value)
