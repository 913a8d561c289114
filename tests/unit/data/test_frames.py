"""Tables as files: read as their names say, written whole, refused in one line."""

from __future__ import annotations

import gzip
import importlib.util
import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tuner.data.recent_rows import check_frame_kind, read_frame, write_frame
from tuner.data.source_kinds import CsvSource
from tuner.errors import DataError, TunerError, UsageError

FRAME = pd.DataFrame({"ds": ["2024-01-01", "2024-01-02"], "site": ["007", "NA"], "load": [0.1, 2]})


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV"])
def test_a_table_is_read_as_it_was_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"table{suffix}"
    write_frame(path, FRAME)
    found = read_frame(path, texts=["ds", "site"])
    assert found.to_dict("list") == FRAME.to_dict("list")


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path: Path) -> None:
    names = ["=1+cmd|' /C calc'!A0", "plain"]
    frame = pd.DataFrame({"@site": names, "ds": pd.to_datetime(FRAME["ds"]), "0.5": [-1.5, 2.0]})
    write_frame(tmp_path / "table.csv", frame)
    assert (tmp_path / "table.csv").read_text().splitlines() == [
        "'@site,ds,0.5",
        "'=1+cmd|' /C calc'!A0,2024-01-01,-1.5",
        "plain,2024-01-02,2.0",
    ]
    write_frame(tmp_path / "table.parquet", frame)
    assert read_frame(tmp_path / "table.parquet", texts=[])["@site"].tolist() == names


def test_a_table_is_read_in_the_dialect_that_is_known_or_else_in_its_own(tmp_path: Path) -> None:
    path, other = tmp_path / "table.csv", tmp_path / "other.csv"
    path.write_text("\ufeff ds ;load\n2024-01-01;1.234,5\n2024-01-02;\n", encoding="utf-8")
    other.write_text("ds,load\n2024-01-01,1234.5\n2024-01-02,\n", encoding="utf-8")
    known = CsvSource(kind="csv", path=path, separator=";", decimal=",", thousands=".")
    for file, written in ((path, None), (path, known), (other, known)):
        found = read_frame(file, texts=["ds"], written=written)
        assert list(found.columns) == ["ds", "load"]
        assert found["ds"][0] == "2024-01-01"
        assert found["load"][0] == 1234.5
        assert found["load"].isna().tolist() == [False, True]


@pytest.mark.parametrize("open_with", [gzip.compress, bytes])
def test_a_table_may_be_packed_and_come_from_standard_input(
    open_with: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = open_with(b"ds,load\n2024-01-01,2\n")
    (tmp_path / "t.csv.gz").write_bytes(content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    for path in (tmp_path / "t.csv.gz", Path("-")):
        assert read_frame(path, texts=["ds"])["load"].tolist() == [2]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "the file is empty"),
        ("binary.csv", b"\xff\xfe\x00\x01" * 20, "has a header but no rows"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", "row 3: the row has 4 cells"),
        ("text.parquet", b"a,b\n1,2\n", "cannot be read as Parquet"),
        ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "cannot be unpacked as gzip"),
    ],
)
def test_what_is_no_table_is_refused(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_frame(tmp_path / name, texts=[])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; name a table with recent rows"):
        read_frame(tmp_path / "none.csv", texts=[])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is a folder; name a CSV"):
        read_frame(tmp_path / "folder.csv", texts=[])
    with pytest.raises(TunerError, match="cannot be written"):
        write_frame(tmp_path / "folder.csv", FRAME)


def test_another_ending_and_a_missing_library_are_said_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=r"a table is \.csv or \.parquet"):
        check_frame_kind(Path("recent.xlsx"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_frame_kind(Path("recent.csv"))
    with pytest.raises(TunerError, match=r"pip install 'tuner\[parquet\]'"):
        check_frame_kind(Path("recent.parquet"))


@pytest.mark.parametrize("header", ["ds,heat,heat", "ds,heat,heat ", "ds, heat ,price,heat"])
def test_a_name_that_stands_twice_in_a_header_is_refused(header: str, tmp_path: Path) -> None:
    """Pandas would rename one, and a blank would tell two apart that are one."""
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"rows.csv, row 1: column 'heat' is there 2 times; rename one"
    ):
        read_frame(path, texts=["ds"])
