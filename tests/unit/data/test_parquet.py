from __future__ import annotations

import datetime
import decimal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.small_csv import LONG, TASK, csv_lines
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.errors import DataError

PARQUET = TASK.replace('"csv"', '"parquet"').replace("small.csv", "small.parquet")


def frame(rows: int = 60) -> pd.DataFrame:
    """The rows of the small CSV."""
    cells = [line.split(",") for line in csv_lines(rows)]
    table = pd.DataFrame(cells[1:], columns=cells[0])
    return pd.DataFrame(
        {
            "ds": pd.to_datetime(table["ds"]),
            "a": table["a"].astype(float),
            "b": table["b"].astype("int16"),
        }
    )


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., PreparedData]:
    """A table as a Parquet file, prepared by a task."""

    def run(table: pd.DataFrame | pa.Table, toml: str = PARQUET) -> PreparedData:
        if isinstance(table, pd.DataFrame):
            table = pa.Table.from_pandas(table, preserve_index=False)
        pq.write_table(table, tmp_path / "small.parquet")
        (tmp_path / "small.toml").write_text(toml, encoding="utf-8")
        return prepare(load_task(str(tmp_path / "small.toml")), cache_dir=tmp_path / "cache")

    return run


@pytest.fixture
def said(prepared: Callable[..., PreparedData], tmp_path: Path) -> Callable[..., str]:
    def run(table: pd.DataFrame | pa.Table, toml: str = PARQUET) -> str:
        with pytest.raises(DataError) as caught:
            prepared(table, toml)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return run


def test_it_holds_what_a_csv_holds(
    prepared: Callable[..., PreparedData], prepare_small: Callable[..., PreparedData]
) -> None:
    np.testing.assert_array_equal(
        prepared(frame()).train.targets, prepare_small(csv_lines(60)).train.targets
    )


@pytest.mark.parametrize(
    "times",
    [
        lambda t: t.astype("datetime64[ns]"),
        lambda t: t.astype("datetime64[s]"),
        lambda t: t.dt.tz_localize("UTC"),
        lambda t: t.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        lambda t: t.astype(str),
    ],
)
def test_times_of_each_kind_are_the_same(
    prepared: Callable[..., PreparedData], times: Callable[[Any], Any]
) -> None:
    expected = prepared(frame()).data_hash
    assert prepared(frame().assign(ds=times(frame()["ds"]))).data_hash == expected


def test_numbers_of_each_kind_are_the_same(prepared: Callable[..., PreparedData]) -> None:
    expected = prepared(frame()).data_hash
    assert prepared(frame().astype({"a": "float32", "b": "uint64"})).data_hash == expected
    exact = [decimal.Decimal(str(value)) for value in frame()["a"]]
    assert prepared(frame().assign(a=pd.Series(exact, dtype=object))).data_hash == expected


def test_days_are_times(prepared: Callable[..., PreparedData]) -> None:
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=i) for i in range(60)]
    daily = prepared(frame().assign(ds=days), PARQUET.replace('"h"', '"D"'))
    assert len(daily.train.starts) == 29


def test_several_series_are_told_apart(prepared: Callable[..., PreparedData]) -> None:
    two = pd.concat([frame().assign(unique_id=name) for name in ("x", "y")])
    toml = LONG.replace('"csv"', '"parquet"').replace("small.csv", "small.parquet")
    found = prepared(two.astype({"unique_id": "category"}), toml.replace('["y"]', '["a"]'))
    assert found.series == ("x", "y")


def test_gaps_are_filled_as_in_a_csv(
    prepared: Callable[..., PreparedData], prepare_small: Callable[..., PreparedData]
) -> None:
    table = frame().astype({"b": float}).drop(index=[20, 21])
    table.loc[5, "b"] = np.nan
    lines = csv_lines(60)
    lines[6] = "2024-01-01 05:00:00,5.5,"
    del lines[21:23]
    filled = prepared(table, PARQUET + 'gaps = "fill"\n')
    assert (filled.filled_rows, filled.filled_cells) == ((2,), (1,))
    expected = prepare_small(lines, TASK + 'gaps = "fill"\n')
    np.testing.assert_array_equal(filled.train.targets, expected.train.targets)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": "x"}, "column 'a': holds "),
        ({"ds": 5}, "column 'ds': holds int64, expected timestamps; convert it, or set index"),
        ({"a": np.inf}, "row 1, column 'a': 'inf' is not a finite number"),
        ({"a": np.nan}, "row 1, column 'a': the cell is empty"),
        ({"ds": pd.NaT}, "row 1, column 'ds': the cell is empty"),
    ],
)
def test_a_column_of_another_kind_is_named(
    said: Callable[..., str], change: dict[str, Any], words: str
) -> None:
    assert words in said(frame().assign(**change))


def test_yes_and_no_are_one_and_zero(prepared: Callable[..., PreparedData]) -> None:
    even = np.arange(60) % 2
    found = prepared(frame().assign(a=even == 1))
    np.testing.assert_array_equal(found.train.targets[:, 0], even[:36])


def test_lists_are_no_numbers(said: Callable[..., str]) -> None:
    assert "expected numbers" in said(frame().assign(a=pd.Series([[1.0, 2.0]] * 60, dtype=object)))


def test_a_column_that_is_not_there_is_named(said: Callable[..., str]) -> None:
    assert "missing column 'b'; there are: 'ds', 'a'" in said(frame().drop(columns="b"))


def test_no_rows_are_said(said: Callable[..., str]) -> None:
    assert said(frame().head(0)) == "small.parquet: the file has no rows"


@pytest.mark.parametrize("cut", [4, 200, -4, -1])
def test_a_damaged_file_is_one_line(
    prepared: Callable[..., PreparedData], tmp_path: Path, cut: int
) -> None:
    prepared(frame())
    content = (tmp_path / "small.parquet").read_bytes()
    (tmp_path / "small.parquet").write_bytes(content[:cut])
    with pytest.raises(DataError, match="cannot be read as Parquet") as caught:
        prepare(load_task(str(tmp_path / "small.toml")), cache_dir=tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_file_that_claims_too_much_is_refused(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.data.open_file.MOST_CELLS", 100)
    assert "has 60 rows in 3 used columns, at most 100 cells are read" in said(frame())


def test_without_pyarrow_it_says_what_to_install(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pq.write_table

    def write_and_forget(*given: Any) -> None:
        real(*given)
        monkeypatch.setitem(sys.modules, "pyarrow", None)

    monkeypatch.setattr(pq, "write_table", write_and_forget)
    assert said(frame()) == "small.parquet: Parquet needs pyarrow: pip install 'tuner[parquet]'"
