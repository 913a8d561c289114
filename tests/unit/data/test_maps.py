"""A file that is too large for memory: its rows are mapped, and are the same."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.support.small_csv import csv_lines
from tuner.data import maps, open_file
from tuner.data import prepare as preparing
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import Task, load_task
from tuner.data.windows import to_device
from tuner.errors import DataError, DataGoneError

TOML = """
name = "wide"
target_columns = ["a", "b"]
past_covariates = ["p"]
future_covariates = ["f"]
frequency = "h"
input_size = 6
horizon = 2
calendar = ["hour", "month"]
static_id = true
quantiles = [0.1, 0.5, 0.9]

[source]
kind = "parquet"
path = "wide.parquet"
"""
PARTS = TOML.replace('"wide.parquet"', '"part_*.parquet"\nruns = "joined"')
FIGURES = ("minimum", "scale", "covariate_minimum", "covariate_scale", "change", "static")


def table(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((rows, 4)).cumsum(axis=0) * [1, 1e3, 1e-3, 7]
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    columns = dict(zip(["f", "b", "a", "p"], numbers.T, strict=True))  # in another order
    return pd.DataFrame({"ds": times, **columns})


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From here on every file is too large, and read 64 rows at a time."""

    def every() -> None:
        monkeypatch.setattr(preparing, "LARGE_CELLS", 1)
        monkeypatch.setattr(open_file, "ROWS_AT_ONCE", 64)

    return every


def wide(folder: Path, toml: str = TOML, frame: pd.DataFrame | None = None) -> Task:
    (folder / "wide.toml").write_text(toml, encoding="utf-8")
    frame = table() if frame is None else frame
    frame.to_parquet(folder / "wide.parquet", row_group_size=150)
    for at, first in enumerate(range(0, len(frame), 170)):
        part = frame.iloc[first : first + 170]
        part.to_parquet(folder / f"part_{at}.parquet")
    return load_task(str(folder / "wide.toml"))


def assert_same(one: PreparedData, other: PreparedData) -> None:
    assert one.data_hash == other.data_hash
    for name in FIGURES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("series", "filled_rows", "filled_cells", "training_rows", "training_ends"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("train", "val", "test"):
        mine, its = getattr(one, name), getattr(other, name)
        assert mine.rows.dtype == its.rows.dtype == np.float32
        for array in ("rows", "targets", "past", "future", "starts", "series_index"):
            np.testing.assert_array_equal(getattr(mine, array), getattr(its, array))


def changed(*pairs: tuple[str, str]) -> str:
    toml = TOML
    for old, new in pairs:
        assert old in toml
        toml = toml.replace(old, new)
    return toml


ONE_TARGET = (('["a", "b"]', '["b"]'), ("static_id = true", ""))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "toml",
    [
        TOML,
        changed(*ONE_TARGET),
        changed(('"h"', '"h"\nsplit = [0.9, 0.05, 0.05]')),
        changed(('kind = "parquet"', 'kind = "parquet"\ntimezone = "Europe/Berlin"')),
    ],
    ids=["two targets", "one target", "another split", "local time"],
)
def test_every_bit_is_what_it_is_in_memory(
    tmp_path: Path, large: Callable[[], None], toml: str, whole: bool
) -> None:
    task = wide(tmp_path, toml, table(800))
    one = prepare(task, cache_dir=tmp_path / "one", whole=whole)
    assert one.train.place is None
    large()
    other = prepare(task, cache_dir=tmp_path / "other", whole=whole)
    assert_same(one, other)
    assert other.train.place is not None
    again = prepare(task, cache_dir=tmp_path / "other", whole=whole)
    assert again.train.place == other.train.place
    assert_same(other, again)
    assert not list((tmp_path / "other").glob("*.npz")), "all of it is in one folder"


@pytest.mark.parametrize("in_pieces", [False, True])
def test_parts_of_a_file_are_that_file(
    tmp_path: Path, large: Callable[[], None], in_pieces: bool
) -> None:
    one = prepare(wide(tmp_path), cache_dir=tmp_path / "one")
    task = wide(tmp_path, PARTS)
    assert len(list(tmp_path.glob("part_*.parquet"))) == 3
    if in_pieces:
        large()
    other = prepare(task, cache_dir=tmp_path / "other")
    assert (other.train.place is not None) == in_pieces
    assert other.task.definition() == one.task.definition()
    assert_same(one, other)


def test_parts_of_a_csv_are_that_csv(task_file: Callable[..., Task], tmp_path: Path) -> None:
    lines = csv_lines(90)
    one = prepare(task_file(lines), cache_dir=tmp_path / "cache")
    for at in range(3):
        part = [lines[0], *lines[1 + 30 * at : 31 + 30 * at]]
        (tmp_path / f"p{at}.csv").write_text("\n".join(part) + "\n")
    toml = (tmp_path / "small.toml").read_text()
    joined = toml.replace('"small.csv"', '"p?.csv"\nruns = "joined"')
    (tmp_path / "small.toml").write_text(joined)
    assert_same(one, prepare(load_task(str(tmp_path / "small.toml")), cache_dir=tmp_path / "cache"))


def test_parts_that_do_not_follow_each_other_are_one_line(tmp_path: Path) -> None:
    task = wide(tmp_path, PARTS)
    (tmp_path / "part_1.parquet").unlink()
    with pytest.raises(DataError, match=r"part_\*\.parquet, row 171"):
        prepare(task, cache_dir=tmp_path / "cache")
    pd.DataFrame({"ds": [], "x": []}).to_parquet(tmp_path / "part_1.parquet")
    with pytest.raises(DataError, match=r"part_1\.parquet: the file has no rows"):
        prepare(task, cache_dir=tmp_path / "cache")
    table(3).rename(columns={"a": "x"}).to_parquet(tmp_path / "part_1.parquet")
    with pytest.raises(DataError, match=r"part_1\.parquet: has the columns .*'x'.*others than"):
        prepare(task, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("column", ["a", "f"])
def test_what_is_wrong_is_said_as_in_memory(
    tmp_path: Path, large: Callable[[], None], column: str
) -> None:
    frame = table()
    frame.loc[333, column] = np.nan
    task = wide(tmp_path, TOML, frame)
    with pytest.raises(DataError) as one:
        prepare(task, cache_dir=tmp_path / "one")
    large()
    with pytest.raises(DataError) as other:
        prepare(task, cache_dir=tmp_path / "other")
    assert str(one.value) == str(other.value)
    assert "row 334" in str(one.value)
    left = {path.suffix for path in (tmp_path / "other").iterdir()}
    assert left <= {".lock"}, "nothing is left half made"


def test_another_process_maps_the_same_file(tmp_path: Path, large: Callable[[], None]) -> None:
    large()
    prepared = prepare(wide(tmp_path), cache_dir=tmp_path / "cache")
    sent = pickle.dumps(prepared)
    assert len(sent) < prepared.train.rows.nbytes + 20_000
    again = pickle.loads(sent)
    assert again.train.place == prepared.train.place
    assert_same(prepared, again)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(DataGoneError, match=r"train\.npy: cannot be mapped"):
        pickle.loads(sent)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_maps_are_made_again(
    tmp_path: Path, large: Callable[[], None], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    large()
    task = wide(tmp_path)
    prepare(task, cache_dir=tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob(f"*{maps.MAPS}/val.npy")
    size = path.stat().st_size
    if damage == "cut":
        with path.open("r+b") as file:
            file.truncate(size // 2)
    else:
        path.unlink()
    assert prepare(task, cache_dir=tmp_path / "cache").val.place == path
    assert path.stat().st_size == size
    assert "preparing the data again" in caplog.text


def test_where_it_cannot_be_written_it_is_read_whole(
    tmp_path: Path, large: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    large()
    (tmp_path / "cache").write_text("no folder")
    assert prepare(wide(tmp_path), cache_dir=tmp_path / "cache").train.place is None
    assert "data is not mapped: cannot write to" in caplog.text


def test_memory_that_runs_out_has_the_file_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(preparing, "_build", full)
    assert prepare(wide(tmp_path), cache_dir=tmp_path / "cache").train.place is not None
    assert "memory ran out" in caplog.text


def test_batches_from_maps_are_those_from_memory(
    tmp_path: Path, large: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    task = wide(tmp_path)
    one = to_device(prepare(task, cache_dir=tmp_path / "one"), "cpu")
    large()
    prepared = prepare(task, cache_dir=tmp_path / "other")
    other = to_device(prepared, "cpu")
    assert other.streamed.startswith("the data is streamed from a memory-mapped file")
    assert other.streamed in caplog.text
    assert to_device(prepared.within(1 << 40), "cpu").streamed == "", "a user may say otherwise"
    index = torch.tensor([5, 0, 17])
    for name in ("train", "val", "test"):
        batches = [getattr(data, name).gather(index) for data in (one, other)]
        for part in ("past", "future", "static", "target"):
            assert torch.equal(*(getattr(batch, part) for batch in batches))


def test_rows_that_vanish_are_one_line(tmp_path: Path, large: Callable[[], None]) -> None:
    large()
    prepared = prepare(wide(tmp_path), cache_dir=tmp_path / "cache")
    data, place = to_device(prepared, "cpu"), prepared.train.place
    assert place is not None
    index, content = torch.arange(4), place.read_bytes()
    with data.train.reading_ahead([index]):
        data.train.gather(index)
    place.unlink()
    with (
        pytest.raises(DataGoneError, match=r"train\.npy: is gone .*No such file"),
        data.train.reading_ahead([index]),
    ):
        data.train.gather(index)
    place.write_bytes(content[:300])
    with pytest.raises(DataGoneError, match=r"it was cut"):
        data.train.gather(index)
