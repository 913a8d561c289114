"""A pattern in place of a file: every file is a run of its own, all of one series."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from tests.support.simulated_runs import changed, prepared_of, small_runs
from tuner.cli.data import facts_of
from tuner.data.prepare import PreparedData, PreparedSplit
from tuner.data.recent_rows import rows_of_task
from tuner.data.sources import in_order_of_splits, open_source
from tuner.data.splits import pieces_of
from tuner.data.task import Task, load_task, task_of
from tuner.errors import DataError, UsageError


def raw(path: Path) -> dict[str, np.ndarray]:
    """(R, 3) of each file by its name."""
    files = sorted(path.parent.glob("data_simulation_*/series.csv"))
    return {
        str(each.relative_to(path.parent)): np.genfromtxt(
            each, delimiter=",", skip_header=1, usecols=(1, 2, 3)
        )
        for each in files
    }


def rows_of(split: PreparedSplit, data: PreparedData) -> np.ndarray:
    """(R, C + F), in the units of the files."""
    targets = split.targets * data.scale[0] + data.minimum[0]
    known = split.future * data.covariate_scale[0] + data.covariate_minimum[0]
    return np.hstack([targets, known])


def test_whole_files_are_dealt_to_the_splits_and_scaled_as_one(
    simulated: Path, tmp_path: Path
) -> None:
    data, files = prepared_of(simulated, tmp_path), raw(simulated)
    assert data.series == ("oscillator",)
    read = open_source(load_task(str(simulated)), None).parse()
    assert [one.name for one in read] == list(files)
    order = [one.name for one in in_order_of_splits(read)]
    assert order != list(files)
    assert sorted(order) == list(files)
    parts = {"train": order[:6], "val": order[6:8], "test": order[8:]}
    for name, owners in parts.items():
        expected = np.concatenate([files[each] for each in owners])
        np.testing.assert_allclose(rows_of(getattr(data, name), data), expected, atol=1e-5)
    train = np.concatenate([files[each] for each in parts["train"]])
    np.testing.assert_allclose(data.minimum[0], train[:, :2].min(axis=0))
    np.testing.assert_allclose(data.scale[0], np.ptp(train[:, :2], axis=0))
    changes = np.concatenate([np.abs(np.diff(files[each][:, :2], axis=0)) for each in order[:6]])
    np.testing.assert_allclose(data.change[0], changes.mean(axis=0))


@pytest.mark.parametrize("runs", ["by_file", "by_time"])
def test_no_window_crosses_files(task_of_runs: Path, tmp_path: Path, runs: str) -> None:
    changed(
        task_of_runs,
        ('"by_file"', f'"{runs}"'),
        ("input_size = 8", "input_size = 3"),
        ("horizon = 6", "horizon = 2"),
    )
    data, files = prepared_of(task_of_runs, tmp_path), raw(task_of_runs)
    targets = [each[:, :2] for each in files.values()]
    every = np.concatenate([sliding_window_view(each, 5, axis=0) for each in targets])
    every = every.swapaxes(1, 2)
    counts = {"by_file": (6 * 36, 2 * 36, 2 * 18), "by_time": (10 * 20, 10 * 4, 10 * 2)}
    splits = (data.train, data.val, data.test)
    assert tuple(len(split.starts) for split in splits) == counts[runs]
    for split in splits:
        assert set(split.series_index.tolist()) == {0}
        values = rows_of(split, data)[:, :2]
        for start in split.starts:
            window = values[start : start + 5]
            assert np.isclose(every, window, atol=1e-5).all(axis=(1, 2)).any()


def test_what_the_data_is_does_not_depend_on_its_place(task_of_runs: Path, tmp_path: Path) -> None:
    here = prepared_of(task_of_runs, tmp_path)
    moved = Path(shutil.move(task_of_runs.parent, tmp_path / "elsewhere")) / task_of_runs.name
    assert prepared_of(moved, tmp_path).data_hash == here.data_hash
    again = task_of(load_task(str(moved)).definition())
    assert again.definition() == here.task.definition()
    assert again.definition()["source"]["runs"] == "by_file"


def test_names_and_contents_of_all_files_are_what_the_data_is(
    task_of_runs: Path, tmp_path: Path
) -> None:
    before = prepared_of(task_of_runs, tmp_path).data_hash
    last = task_of_runs.parent / "data_simulation_009"
    renamed = last.rename(last.with_name("data_simulation_010"))
    other = prepared_of(task_of_runs, tmp_path).data_hash
    renamed.rename(last)
    assert prepared_of(task_of_runs, tmp_path).data_hash == before != other
    text = (last / "series.csv").read_text()
    (last / "series.csv").write_text(text.replace("0.", "0.1", 1))
    assert prepared_of(task_of_runs, tmp_path).data_hash != before
    shutil.rmtree(last)
    assert prepared_of(task_of_runs, tmp_path).data_hash != before


def test_it_is_looked_for_in_another_folder_too(
    task_of_runs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = prepared_of(task_of_runs, tmp_path).data_hash
    alone = tmp_path / "alone" / "oscillator.toml"
    alone.parent.mkdir()
    shutil.copy(task_of_runs, alone)
    with pytest.raises(DataError, match=r"the pattern finds no file in .*alone"):
        prepared_of(alone, tmp_path)
    assert not caplog.text
    assert prepared_of(alone, tmp_path, data_dir=task_of_runs.parent).data_hash == here
    assert f"finds nothing in its place; taken from {task_of_runs.parent}" in caplog.text


def spoiled_columns(folder: Path) -> None:
    changed(folder / "data_simulation_004/series.csv", ("velocity", "speed"))


def spoiled_empty(folder: Path) -> None:
    (folder / "data_simulation_004/series.csv").write_text("time,position,velocity,force\n")


def spoiled_nothing(folder: Path) -> None:
    (folder / "data_simulation_004/series.csv").write_text("")


def spoiled_short(folder: Path) -> None:
    path = folder / "data_simulation_004/series.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:10]) + "\n")


def spoiled_gap(folder: Path) -> None:
    path = folder / "data_simulation_004/series.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:5] + lines[7:]) + "\n")


def spoiled_cell(folder: Path) -> None:
    path = folder / "data_simulation_004/series.csv"
    lines = path.read_text().splitlines()
    lines[3] = lines[3].rpartition(",")[0] + ",much"
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoiled_columns, "'velocity'"),
        (spoiled_empty, "no rows"),
        (spoiled_nothing, "the file is empty"),
        (
            spoiled_short,
            "has 9 rows, needed are 14: each split must hold a window of input_size 8 + horizon 6",
        ),
        (spoiled_gap, "row"),
        (spoiled_cell, "'much' is not a finite number"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_a_remedy(
    task_of_runs: Path, tmp_path: Path, spoil: object, said: str
) -> None:
    assert callable(spoil)
    spoil(task_of_runs.parent)
    with pytest.raises(DataError) as caught:
        prepared_of(task_of_runs, tmp_path)
    line = str(caught.value)
    assert "data_simulation_004/series.csv" in line
    among = "(one of the 10 files of data_simulation_*/series.csv: " in line
    assert among == (spoil is not spoiled_short)  # which says so of all that are as short
    assert said in line
    assert "leave" in line
    assert "\n" not in line


def test_by_time_a_short_file_is_named(task_of_runs: Path, tmp_path: Path) -> None:
    changed(task_of_runs, ('"by_file"', '"by_time"'))
    with pytest.raises(DataError, match=r"file data_simulation_000/series.csv has 40 rows, needed"):
        prepared_of(task_of_runs, tmp_path)


def test_too_few_files_for_the_splits(task_of_runs: Path, tmp_path: Path) -> None:
    changed(task_of_runs, ("data_simulation_*", "data_simulation_00?"))
    for number in range(1, 10):
        shutil.rmtree(task_of_runs.parent / f"data_simulation_{number:03}")
    with pytest.raises(DataError, match=r'finds 1 files, and the train split .* runs = "by_time"'):
        prepared_of(task_of_runs, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("data_simulation_*/", "data_simulation_000/", "belongs to a path with a wildcard"),
        ('"by_file"', '"by_magic"', "by_file"),
        ('time_column = "time"', 'time_column = "time"\nid_column = "run"', "a run of one series"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(
    task_of_runs: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load_task(str(changed(task_of_runs, (old, new))))


def test_without_a_word_whole_files_are_dealt(task_of_runs: Path) -> None:
    task = load_task(str(changed(task_of_runs, ('runs = "by_file" ', ""))))
    assert task.definition()["source"]["runs"] == "by_file"


def test_a_task_of_one_file_is_what_it_was() -> None:
    source = {"kind": "csv", "path": "a.csv"}
    plain = {"name": "a", "source": source, "target_columns": ["y"], "frequency": "h"}
    task = Task.model_validate({**plain, "input_size": 2, "horizon": 1})
    assert task.definition()["source"] == {"kind": "csv", "time_column": "ds", "id_column": None}


def test_what_is_constant_in_each_file_may_tell_them_apart(task_of_runs: Path) -> None:
    for number, path in enumerate(sorted(task_of_runs.parent.glob("*/series.csv"))):
        head, *lines = path.read_text().splitlines()
        rows = [f"{head},mass,fixed", *(f"{line},{number},1" for line in lines)]
        path.write_text("\n".join(rows) + "\n")
    covariates = 'past_covariates = ["mass", "fixed"]\nfrequency'
    facts = facts_of(load_task(str(changed(task_of_runs, ("frequency", covariates)))))
    assert facts.constant == ("fixed",)
    assert len(facts.series) == 10


def test_a_forecast_begins_at_the_end_of_one_file(task_of_runs: Path) -> None:
    with pytest.raises(UsageError, match="has many files, a forecast begins at the end of one"):
        rows_of_task(task_of_runs)


def test_each_file_is_shown_with_the_split_that_it_is_in(task_of_runs: Path) -> None:
    task = load_task(str(task_of_runs))
    pieces = pieces_of(task, open_source(task, None).parse())
    whole = slice(0, 40)
    expected = [
        {name: whole}
        for name, files in (("train", 6), ("val", 2), ("test", 2))
        for _ in range(files)
    ]
    assert [piece.splits for piece in pieces] == expected


def test_hundreds_of_files_are_read_in_seconds_and_kept(tmp_path: Path) -> None:
    path = small_runs(tmp_path / "data", runs=200, rows=30)
    began = time.process_time()
    first = prepared_of(path, tmp_path)
    assert time.process_time() - began < 10
    began = time.process_time()
    assert prepared_of(path, tmp_path).data_hash == first.data_hash
    assert time.process_time() - began < 1
