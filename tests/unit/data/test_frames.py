"""Tables as files: read as their names say, written whole, refused in one line."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from tuner.data.recent_rows import check_frame_kind, read_frame, write_frame
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


def test_another_dialect_is_read_where_it_is_said_and_named_where_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufeff ds ;load\n2024-01-01;1,5\n2024-01-02;\n", encoding="utf-8")
    found = read_frame(path, texts=["ds"], separator=";", decimal=",")
    assert list(found.columns) == ["ds", "load"]
    assert found["ds"][0] == "2024-01-01"
    assert found["load"][0] == 1.5
    assert found["load"].isna().tolist() == [False, True]
    with pytest.raises(DataError, match=r"separated by ';'; say so with --separator"):
        read_frame(path, texts=["ds"])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.csv", b"", "cannot be read as CSV"),
        ("binary.csv", b"\xff\xfe\x00\x01" * 20, "cannot be read as CSV"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as CSV"),
        ("text.parquet", b"a,b\n1,2\n", "cannot be read as Parquet"),
    ],
)
def test_what_is_no_table_is_refused(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says) as caught:
        read_frame(tmp_path / name, texts=[])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_frame(tmp_path / "none.csv", texts=[])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="cannot be read"):
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
    with pytest.raises(DataError, match=r"rows.csv: has two columns 'heat'; leave one of them out"):
        read_frame(path, texts=["ds"])
