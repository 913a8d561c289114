from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.small_csv import LONG, TASK, bent, csv_lines
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import Task
from tuner.errors import DataError

Prepare = Callable[..., PreparedData]


def test_a_wide_file_is_one_series_named_like_the_task(prepare_small: Prepare) -> None:
    prepared = prepare_small(csv_lines(60))
    assert prepared.series == ("small",)
    restored = prepared.train.targets * prepared.scale[0] + prepared.minimum[0]
    np.testing.assert_allclose(
        restored, [(i % 7 + 0.5, i * 3 % 11) for i in range(36)], rtol=1e-6, atol=1e-6
    )


def test_a_missing_file_is_named(problem: Callable[..., str]) -> None:
    assert problem(csv_lines(60), TASK.replace("small.csv", "other.csv")) == (
        "other.csv: no such file; correct 'path' under [source] in the task file"
    )


def test_a_missing_file_is_named_where_another_folder_has_none_either(
    task_file: Callable[..., Task], tmp_path: Path
) -> None:
    task = task_file(csv_lines(60), TASK.replace("small.csv", "other.csv"))
    says = rf"{tmp_path}/other.csv: no such file, nor {tmp_path}/there/other.csv; correct 'path'"
    with pytest.raises(DataError, match=says):
        prepare(task, data_dir=tmp_path / "there", cache_dir=tmp_path / "cache")


def test_a_folder_in_place_of_a_file_is_named(problem: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert problem(csv_lines(60), TASK.replace("small.csv", "folder")) == (
        "folder: is a folder; name a CSV or a Parquet file"
    )


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf\r\n"])
def test_an_empty_file_is_named(problem: Callable[..., str], content: bytes) -> None:
    assert (
        problem(content) == "small.csv: the file is empty; a header row and data rows are expected"
    )


def test_a_header_without_rows_is_named(problem: Callable[..., str]) -> None:
    assert problem(["ds,a,b"]) == "small.csv: the file has a header but no rows"


def test_a_missing_column_is_named_with_those_there(problem: Callable[..., str]) -> None:
    assert (
        problem(bent(1, "ds,a,c"))
        == "small.csv, row 1: missing column 'b'; there are: 'ds', 'a', 'c'"
    )


def test_a_used_column_that_is_there_twice_is_named(problem: Callable[..., str]) -> None:
    lines = [f"{line},1" for line in csv_lines(60)]
    lines[0] = "ds,a,b,a"
    assert problem(lines) == "small.csv, row 1: column 'a' is there 2 times; rename one"


def test_too_few_rows_say_how_many_are_needed(
    problem: Callable[..., str], prepare_small: Prepare
) -> None:
    assert problem(csv_lines(37)) == (
        "small.csv: series 'small' has 37 rows, needed are 38: each split must hold "
        "a window of input_size 6 + horizon 2 = 8 rows, and the shortest has 7; "
        "give more rows, leave it out, or a smaller input_size or horizon"
    )
    assert len(prepare_small(csv_lines(38)).val.starts) == 1


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("nan", "'nan' is not a finite number; correct or remove it"),
        ("NaN", "'NaN' is not a finite number; correct or remove it"),
        ("-inf", "'-inf' is not a finite number; correct or remove it"),
        ("1e999", "'1e999' is not a finite number; correct or remove it"),
        ("high", "'high' is not a finite number; correct or remove it"),
        ("1_000", "'1_000' is not a finite number; correct or remove it"),
        ("", "the cell is empty; every cell of a used column must hold a finite number"),
        (
            '"1,5"',
            "'1,5' looks like a decimal comma: set decimal = ',' under [source] in the task file",
        ),
    ],
)
def test_a_cell_that_is_no_number_is_named_by_row_and_column(
    problem: Callable[..., str], cell: str, said: str
) -> None:
    assert (
        problem(bent(12, f"2024-01-01 10:00:00,1,{cell}"))
        == f"small.csv, row 12, column 'b': {said}"
    )


def test_a_bad_cell_of_an_unused_column_is_no_problem(prepare_small: Prepare) -> None:
    lines = [f"{line},nan" for line in csv_lines(60)]
    lines[0] = "ds,a,b,note"
    assert prepare_small(lines).shapes.n_targets == 2


def test_a_covariates_cell_is_checked_too(problem: Callable[..., str]) -> None:
    toml = TASK.replace('["a", "b"]', '["a"]').replace(
        "horizon = 2", 'horizon = 2\npast_covariates = ["b"]'
    )
    assert problem(bent(5, "2024-01-01 03:00:00,1,inf"), toml).startswith(
        "small.csv, row 5, column 'b': 'inf' is not"
    )


SEMICOLONS = [line.replace(",", ";").replace(".5", ",5") for line in csv_lines(60)]


def test_semicolons_and_decimal_commas_are_recognised(problem: Callable[..., str]) -> None:
    assert problem(SEMICOLONS) == (
        'small.csv: is written otherwise: set separator = ";" and decimal = "," under [source]'
    )


def test_semicolons_alone_are_recognised(problem: Callable[..., str]) -> None:
    lines = [line.replace(",", ";") for line in csv_lines(60)]
    assert problem(lines) == ('small.csv: is written otherwise: set separator = ";" under [source]')


def test_tabs_are_recognised(problem: Callable[..., str]) -> None:
    lines = [line.replace(",", "\t") for line in csv_lines(60)]
    assert problem(lines) == 'small.csv: is written otherwise: set separator = "\\t" under [source]'


def test_decimal_commas_between_commas_are_recognised(problem: Callable[..., str]) -> None:
    assert problem(bent(3, "2024-01-01 01:00:00,1,5,3")) == (
        "small.csv, row 3: the row has 4 cells, the header has 3; "
        "numbers with decimal commas need another separator: save it with ';'"
    )


def test_semicolons_and_decimal_commas_are_read_and_hash_like_the_same_numbers(
    prepare_small: Prepare,
) -> None:
    ours = prepare_small(SEMICOLONS, TASK + "separator = ';'\ndecimal = ','\n")
    assert ours.data_hash == prepare_small(csv_lines(60)).data_hash


def test_a_row_cut_short_is_named(problem: Callable[..., str]) -> None:
    assert problem(bent(60, "2024-01-03 10:00:00,1")) == (
        "small.csv, row 60: the row has 2 cells, the header has 3; correct the row"
    )


def test_a_blank_row_is_named_except_at_the_end(
    problem: Callable[..., str], prepare_small: Prepare
) -> None:
    assert problem(bent(30, "")) == "small.csv, row 30: the row is blank; remove it or fill it in"
    assert len(prepare_small([*csv_lines(60), "", ",,"]).train.targets) == 36


def test_another_encoding_is_recognised_and_can_be_named(
    problem: Callable[..., str], prepare_small: Prepare
) -> None:
    content = "\n".join(
        [csv_lines(60)[0] + ",Wärme", *(f"{line},1" for line in csv_lines(60)[1:])]
    ).encode("cp1252")
    assert problem(content) == (
        "small.csv, row 1: is not utf-8 text; "
        "set encoding (perhaps 'cp1252') under [source] in the task file or save the file as UTF-8"
    )
    assert prepare_small(content, TASK + 'encoding = "cp1252"\n').series == ("small",)


def test_a_byte_order_mark_and_windows_line_endings_are_read(prepare_small: Prepare) -> None:
    content = b"\xef\xbb\xbf" + "\r\n".join(csv_lines(60)).encode()
    assert prepare_small(content).data_hash == prepare_small(csv_lines(60)).data_hash


def test_an_open_quote_is_one_line(problem: Callable[..., str]) -> None:
    said = problem(bent(7, '2024-01-01 05:00:00,"1,2'))
    assert said.startswith("small.csv, row 7")


def long_lines(rows: int) -> list[str]:
    """Two series, interleaved: `south` comes first in the file."""
    lines = ["unique_id,ds,y"]
    for i, line in enumerate(csv_lines(rows)[1:]):
        time = line.split(",")[0]
        lines += [f"south,{time},{i % 5}", f"north,{time},{100 + i % 3}"]
    return lines


def test_a_long_file_gives_series_in_order_of_first_appearance(prepare_small: Prepare) -> None:
    prepared = prepare_small(long_lines(60), LONG)
    assert prepared.series == ("south", "north")
    assert prepared.minimum.tolist() == [[0.0], [100.0]]
    assert prepared.scale.tolist() == [[4.0], [2.0]]


def test_a_long_file_may_have_several_targets(prepare_small: Prepare) -> None:
    lines = [f"{line},{i}" for i, line in enumerate(long_lines(60))]
    lines[0] = "unique_id,ds,y,z"
    prepared = prepare_small(lines, LONG.replace('["y"]', '["y", "z"]'))
    assert prepared.train.targets.shape == (72, 2)


def test_rows_of_a_long_file_are_named_as_in_the_file(problem: Callable[..., str]) -> None:
    lines = long_lines(60)
    lines[9] = lines[7]
    assert problem(lines, LONG) == (
        "small.csv, row 10, column 'ds': duplicate timestamp 2024-01-01 03:00:00 (also in row 8); "
        "keep one row per timestamp"
    )


def test_a_row_without_a_series_is_named(problem: Callable[..., str]) -> None:
    lines = long_lines(60)
    lines[9] = lines[9].removeprefix("north").removeprefix("south")
    assert (
        problem(lines, LONG)
        == "small.csv, row 10, column 'unique_id': the cell is empty; name the row's series"
    )


def test_a_series_too_short_is_named(problem: Callable[..., str]) -> None:
    lines = [*long_lines(60), "west,2024-01-01 00:00:00,1"]
    assert problem(lines, LONG).startswith("small.csv: series 'west' has 1 rows, needed are 38")


def test_a_long_file_read_as_wide_is_told_about_id_column(problem: Callable[..., str]) -> None:
    said = problem(long_lines(60), TASK.replace('["a", "b"]', '["y"]'))
    assert "row 3" in said
    assert said.endswith("if the file holds several series, set id_column under [source]")
