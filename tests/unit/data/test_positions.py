"""Positions of a task: read as a stranger's, and part of what the task is."""

from __future__ import annotations

import math
import os
from pathlib import Path

import h5py
import pandas as pd
import pytest

from tests.support.small_csv import LONG, TASK, csv_lines
from tuner.data.prepare import prepare
from tuner.data.task import Task, load_task, shapes, task_of
from tuner.errors import DataError, TunerError, UsageError

ROAD = "series,x,y\na,0,0\nb,3,4\n"


def _task(folder: Path, positions: str | bytes | None, *, task: str = TASK) -> Path:
    path = folder / "small.toml"
    path.write_text(f'positions = "places.csv"\n{task}')
    (folder / "small.csv").write_text("\n".join(csv_lines(60)) + "\n")
    if isinstance(positions, str):
        positions = positions.encode()
    if positions is not None:
        (folder / "places.csv").write_bytes(positions)
    return path


def _loaded(folder: Path, positions: str | bytes) -> Task:
    return load_task(str(_task(folder, positions)))


def test_places_come_in_the_order_of_the_targets_and_reach_networks(tmp_path: Path) -> None:
    text = "\ufeffseries , x,note,y\nb,3,bridge,4\nunused,,?,\na,0,start,0\n"
    task = _loaded(tmp_path, text)
    assert [(each.series, each.x, each.y) for each in task.positions] == [("a", 0, 0), ("b", 3, 4)]
    assert shapes(task).positions == ((0.0, 0.0), (3.0, 4.0))


@pytest.mark.parametrize("ending", ["h5", "parquet"])
def test_they_are_read_from_a_file_of_typed_columns_too(tmp_path: Path, ending: str) -> None:
    file, columns = tmp_path / f"places.{ending}", {"x": [0.0, 3.0], "y": [0.0, 4.0]}
    if ending == "h5":
        with h5py.File(file, "w") as written:
            for name, values in (("series", ["a", "b"]), *columns.items()):
                written[name] = values
    else:
        pd.DataFrame({"series": ["a", "b"], **columns}).to_parquet(file)
    task = _task(tmp_path, None)
    task.write_text(task.read_text().replace("places.csv", file.name))
    assert shapes(load_task(str(task))).positions == ((0.0, 0.0), (3.0, 4.0))


def test_degrees_become_kilometres_the_short_way_round(tmp_path: Path) -> None:
    task = _loaded(tmp_path, "series,lat,lon\na,60,179.9\nb,60.1,-179.9\n")
    (_, _), (x, y) = shapes(task).positions
    assert y == pytest.approx(11.12, abs=0.01)
    assert x == pytest.approx(22.24 * math.cos(math.radians(60.05)), abs=0.01)
    assert x == round(x, 6)


def test_they_are_part_of_the_task_and_of_its_data_wherever_they_lie(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    first, same = _loaded(here, ROAD), _loaded(there, ROAD.replace(",3,4", ", 3.0 ,4e0"))
    assert first.definition() == same.definition()
    hashes = [prepare(task, cache_dir=tmp_path).data_hash for task in (first, same)]
    other = _loaded(there, ROAD.replace("3,4", "3,5"))
    hashes.append(prepare(other, cache_dir=tmp_path).data_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert task_of(first.definition()).positions == first.positions


def test_a_task_without_positions_is_what_it_always_was(tmp_path: Path) -> None:
    path = _task(tmp_path, None)
    path.write_text(TASK)
    task = load_task(str(path))
    assert "positions" not in task.definition()
    assert shapes(task).positions == ()


def test_a_stored_task_whose_places_are_not_its_targets_is_refused(tmp_path: Path) -> None:
    stored = _loaded(tmp_path, ROAD).definition()
    stored["positions"] = stored["positions"][::-1]
    with pytest.raises(ValueError, match="a place for each target column"):
        task_of(stored)


WRONG = {
    "no header": ("a,0,0\nb,1,1\n", "row 1: a header with the columns series,x,y or"),
    "nothing": ("", "the file is empty"),
    "one axis": ("series,x\na,0\n", "row 1: a header with the columns"),
    "two pairs": ("series,x,y,lat,lon\na,0,0,0,0\n", "row 1: a header with the columns"),
    "a column twice": ("series,x,y,x\na,0,0,0\n", "row 1: column 'x' is there 2 times"),
    "ragged": ("series,x,y\na,0,0\nb,1\n", "row 3: the row has 2 cells, the header has 3"),
    "a series twice": (f"{ROAD}a,1,1\n", "target 'a' is there twice; have one row for"),
    "no number": (
        "series,x,y\na,0,0\nb,here,1\n",
        "row 3, column 'x': a number from -1e.09 to 1e.09 is expected, got 'here'",
    ),
    "Python's number": ("series,x,y\na,0,0\nb,1_000,1\n", "row 3, column 'x': .* got '1_000'"),
    "other digits": ("series,x,y\na,0,0\nb,\u0661,1\n", "row 3, column 'x': .* got"),
    "not finite": ("series,x,y\na,0,0\nb,1,nan\n", "row 3, column 'y': .* got 'nan'"),
    "infinite": ("series,x,y\na,0,0\nb,1,-inf\n", "row 3, column 'y': .* got '-inf'"),
    "empty cell": ("series,x,y\na,0,\nb,1,0\n", "row 2, column 'y': .* got ''"),
    "latitude": ("series,lat,lon\na,0,0\nb,91,0\n", "column 'lat': a number from -90 to 90"),
    "a target missing": ("series,x,y\na,0,0\nB,1,1\n", "target 'b' is missing"),
    "an open quote": ('series,x,y\na,0,0\n"b,1,1\n', "row 3: the row has 1 cells"),
    "other bytes": (b"series,x,y\na,0,0\n\xff,1,1\n", "row 3: is not utf-8 text"),
    "escapes": ("series,x,y\na,0,0\nb,\x1b[31m,1\n", r"row 3, column 'x': .* got '\\+u001b\[31m'"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_each_fault_is_one_line_with_file_and_place(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        _loaded(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(str(tmp_path / "places.csv"))
    assert "\n" not in said
    assert "\x1b" not in said


def _refused(path: Path, kind: type[TunerError]) -> str:
    with pytest.raises(kind) as caught:
        load_task(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    said = _refused(_task(tmp_path, None), DataError)
    assert "places.csv: no such file; correct 'positions' in the task file" in said
    (tmp_path / "places.csv").mkdir()
    assert "places.csv: is a folder" in _refused(tmp_path / "small.toml", DataError)


@pytest.mark.parametrize("value", ["5", '""', "[]", '[["a", 0, 0]]'])
def test_what_is_no_path_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    path = _task(tmp_path, ROAD)
    path.write_text(f"# where the detectors are\npositions = {value}\n{TASK}")
    said = _refused(path, UsageError)
    assert said.startswith(f"{path}, line 2: key 'positions': the path of a file is expected")


def test_series_below_each_other_are_no_detectors_of_one_window(tmp_path: Path) -> None:
    said = _refused(_task(tmp_path, ROAD, task=LONG), UsageError)
    assert "line 1: key 'positions'" in said
    assert "write a wide file, with a column for each detector" in said


def test_a_misspelt_key_is_still_told_first(tmp_path: Path) -> None:
    path = _task(tmp_path, ROAD)
    path.write_text(path.read_text().replace("positions =", "position ="))
    assert "unknown key 'position' (did you mean 'positions'" in _refused(path, UsageError)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = _task(tmp_path, None)
    os.mkfifo(tmp_path / "places.csv")
    assert "places.csv: cannot be read (it is a pipe or a device; name a plain file)" in _refused(
        path, DataError
    )


def test_a_link_to_a_file_is_a_file(tmp_path: Path) -> None:
    path = _task(tmp_path, None)
    (tmp_path / "road.csv").write_text(ROAD)
    (tmp_path / "places.csv").symlink_to("road.csv")
    assert len(load_task(str(path)).positions) == 2
