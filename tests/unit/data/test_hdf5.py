"""An HDF5 file, a dataset for each column. Where h5py is not installed, a stand-in of what is used
of it reads the same columns.
"""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

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
Write = Callable[[Path, dict[str, Any]], None]


class StandIn:
    """A file of pickled arrays, opened as h5py opens its own."""

    def __init__(self, place: Path | io.BytesIO, _mode: str) -> None:
        content = place.read_bytes() if isinstance(place, Path) else place.read()
        if not content.startswith(b"PK"):
            raise OSError("Unable to open file (file signature not found)")
        self.held = dict(np.load(io.BytesIO(content), allow_pickle=True))

    def items(self) -> Any:
        return ((name, Dataset(held)) for name, held in self.held.items())


class Dataset:
    def __init__(self, held: np.ndarray[Any, Any]) -> None:
        self.held, self.dtype, self.ndim = held, held.dtype, held.ndim

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        return self.held[rows]

    def asstr(self) -> Dataset:
        return Dataset(self.held.astype(str).astype(object))


@pytest.fixture(params=["stand-in", "h5py"])
def write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes columns as a file."""
    if request.param == "h5py":
        h5py = pytest.importorskip("h5py")

        def real(path: Path, columns: dict[str, Any]) -> None:
            with h5py.File(path, "w") as file:
                for name, cells in columns.items():
                    file[name] = cells

        return real
    module: Any = ModuleType("h5py")
    module.File = StandIn
    module.check_string_dtype = lambda kind: kind if kind.kind == "S" else None
    monkeypatch.setitem(sys.modules, "h5py", module)

    def pickled(path: Path, columns: dict[str, Any]) -> None:
        with path.open("wb") as file:
            np.savez(file, **columns)

    return pickled


def columns_of(frame: pd.DataFrame) -> dict[str, Any]:
    times = frame["ds"].dt.strftime("%Y-%m-%d %H:%M:%S").to_numpy().astype("S")
    return {name: frame[name].to_numpy() for name in frame if name != "ds"} | {"ds": times}


@pytest.mark.parametrize("in_pieces", [False, True])
def test_it_holds_what_a_parquet_file_holds(
    write: Write, tmp_path: Path, in_pieces: bool, monkeypatch: pytest.MonkeyPatch
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
    "two lengths": ({"p": np.zeros(3)}, "all of one length; there are: 'f' (400)"),
    "texts": ({"p": np.full(400, b"high")}, "column 'p': holds string, expected numbers"),
    "a matrix": ({"p": np.zeros((400, 2))}, "missing column 'p'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(write: Write, tmp_path: Path, case: str) -> None:
    changes, expected = WRONG[case]
    write(tmp_path / "wide.h5", columns_of(table()) | changes)
    assert expected in said(tmp_path)


def test_a_file_that_is_none_is_one_line(write: Write, tmp_path: Path) -> None:
    (tmp_path / "wide.h5").write_bytes(b"no such thing")
    assert "wide.h5: cannot be read as HDF5 (" in said(tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("h5py") is not None, reason="h5py is installed")
def test_without_h5py_the_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "wide.h5").write_bytes(b"\x89HDF\r\n")
    assert said(tmp_path).endswith("wide.h5: HDF5 needs h5py: pip install h5py")


def said(folder: Path) -> str:
    (folder / "wide.toml").write_text(HDF5)
    with pytest.raises(DataError) as caught:
        prepare(load_task(str(folder / "wide.toml")), cache_dir=folder / "cache")
    assert "\n" not in str(caught.value)
    return str(caught.value)
