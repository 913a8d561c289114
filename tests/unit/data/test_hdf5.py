"""An HDF5 file, a dataset for each column."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from tests.unit.data.test_maps import TOML, assert_same, table, wide
from tuner.data import open_file
from tuner.data import prepare as preparing
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.errors import DataError

HDF5 = TOML.replace('"parquet"', '"hdf5"').replace("wide.parquet", "wide.h5")


def write(path: Path, columns: dict[str, Any]) -> None:
    """Columns as a file."""
    with h5py.File(path, "w") as file:
        for name, cells in columns.items():
            file[name] = cells


def columns_of(frame: pd.DataFrame) -> dict[str, Any]:
    times = frame["ds"].dt.strftime("%Y-%m-%d %H:%M:%S").to_numpy().astype("S")
    return {name: frame[name].to_numpy() for name in frame if name != "ds"} | {"ds": times}


@pytest.mark.parametrize("in_pieces", [False, True])
def test_it_holds_what_a_parquet_file_holds(
    tmp_path: Path, in_pieces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = table()
    one = prepare(wide(tmp_path, TOML, frame), cache_dir=tmp_path / "one")
    write(tmp_path / "wide.h5", columns_of(frame))
    (tmp_path / "wide.toml").write_text(HDF5)
    if in_pieces:
        monkeypatch.setattr(preparing, "LARGE_CELLS", 1)
        monkeypatch.setattr(open_file, "ROWS_AT_ONCE", 64)
    other = prepare(load_task(str(tmp_path / "wide.toml")), cache_dir=tmp_path / "other")
    assert (other.train.place is not None) == in_pieces
    assert_same(one, replace(other, data_hash=one.data_hash))  # the kind is part of that


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two lengths": (
        {"p": np.zeros(3)},
        "all of one length; there are: 'a' (400), 'b' (400), 'ds' (400), 'f' (400), 'p' (3)",
    ),
    "texts": ({"p": np.full(400, b"high")}, "column 'p': holds string, expected numbers"),
    "a matrix": ({"p": np.zeros((400, 2))}, "missing column 'p'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(tmp_path: Path, case: str) -> None:
    changes, expected = WRONG[case]
    write(tmp_path / "wide.h5", columns_of(table()) | changes)
    assert expected in said(tmp_path)


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "wide.h5").write_bytes(b"no such thing")
    assert "wide.h5: cannot be read as HDF5 (" in said(tmp_path)


def test_without_h5py_the_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "wide.h5").write_bytes(b"\x89HDF\r\n")
    assert said(tmp_path).endswith("wide.h5: HDF5 needs h5py: pip install 'tuner[hdf5]'")


def said(folder: Path) -> str:
    (folder / "wide.toml").write_text(HDF5)
    with pytest.raises(DataError) as caught:
        prepare(load_task(str(folder / "wide.toml")), cache_dir=folder / "cache")
    assert "\n" not in str(caught.value)
    return str(caught.value)
