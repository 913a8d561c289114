from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.small_csv import TASK, bent, csv_lines
from tuner.data.prepare import PreparedData
from tuner.data.task import Task

Prepare = Callable[..., PreparedData]
FILL = TASK + 'gaps = "fill"\n'
LINE = FILL + 'fill = "interpolate"\n'
SKIP = TASK + 'gaps = "skip"\n'


def column(prepared: PreparedData, number: int) -> npt.NDArray[np.float64]:
    """In original units, training rows."""
    scaled = prepared.train.targets[:, number]
    original: npt.NDArray[np.float64] = (
        scaled * prepared.scale[0, number] + prepared.minimum[0, number]
    )
    return original


def with_a_gap() -> list[str]:
    """Rows 20 and 21 of the file are not there: hours 18 and 19."""
    lines = csv_lines(60)
    del lines[19:21]
    return lines


def test_a_missing_row_gets_the_value_before(prepare_small: Prepare) -> None:
    prepared = prepare_small(with_a_gap(), FILL)
    assert (prepared.filled_rows, prepared.filled_cells) == ((2,), (0,))
    np.testing.assert_allclose(column(prepared, 0)[16:21], [2.5, 3.5, 3.5, 3.5, 6.5], rtol=1e-5)


def test_a_missing_row_lies_on_the_line_between_its_neighbours(prepare_small: Prepare) -> None:
    prepared = prepare_small(with_a_gap(), LINE)
    np.testing.assert_allclose(column(prepared, 0)[16:21], [2.5, 3.5, 4.5, 5.5, 6.5], rtol=1e-5)


@pytest.mark.parametrize("cell", ["", "NaN", "NA", "null"])
def test_an_empty_cell_is_filled_alone(prepare_small: Prepare, cell: str) -> None:
    prepared = prepare_small(bent(5, f"2024-01-01 03:00:00,{cell},9"), FILL)
    assert (prepared.filled_rows, prepared.filled_cells) == ((0,), (1,))
    np.testing.assert_allclose(column(prepared, 0)[1:5], [1.5, 2.5, 2.5, 4.5], rtol=1e-5)
    np.testing.assert_allclose(column(prepared, 1)[3], 9, rtol=1e-5)


def test_what_was_made_up_is_said_in_a_line(prepare_small: Prepare) -> None:
    assert prepare_small(csv_lines(60), FILL).filled_notice() is None
    assert prepare_small(with_a_gap(), FILL).filled_notice() == (
        "task small: 2 missing rows and 0 empty cells were filled (forward); the objective counts "
        "them as if they had been measured"
    )


def test_made_up_rows_are_not_the_same_data_as_measured_ones(prepare_small: Prepare) -> None:
    filled = prepare_small(with_a_gap(), FILL)
    lines = csv_lines(60)
    lines[19:21] = ["2024-01-01 18:00:00,3.5,7", "2024-01-01 19:00:00,3.5,7"]
    measured = prepare_small(lines, FILL)
    np.testing.assert_array_equal(filled.train.targets, measured.train.targets)
    assert filled.data_hash != measured.data_hash


def test_skipped_rows_leave_the_others_consecutive(prepare_small: Prepare) -> None:
    prepared = prepare_small(with_a_gap(), SKIP)
    assert prepared.filled_rows == (0,)
    np.testing.assert_allclose(column(prepared, 0)[16:19], [2.5, 3.5, 6.5], rtol=1e-5)


def test_times_still_ascend_where_gaps_are_skipped(problem: Callable[..., str]) -> None:
    lines = with_a_gap()
    lines[30] = lines[29]
    assert "duplicate timestamp" in problem(lines, SKIP)


def test_a_cell_that_is_empty_from_the_beginning_cannot_be_filled(
    problem: Callable[..., str],
) -> None:
    assert problem(bent(2, "2024-01-01 00:00:00,,0"), FILL) == (
        "small.csv, row 2, column 'a': the cell is empty, and the series has no value before it to "
        "fill it with; leave out the rows before the first value, or the column"
    )


def test_no_more_than_half_of_the_rows_is_made_up(problem: Callable[..., str]) -> None:
    lines = csv_lines(60)
    lines[60] = "2124-01-01 00:00:00,1,1"
    assert "876,517 rows are missing between 60 that are there" in problem(lines, FILL)


def test_a_time_between_two_steps_is_no_gap(problem: Callable[..., str]) -> None:
    assert problem(bent(5, "2024-01-01 03:20:00,1,1"), FILL) == (
        "small.csv, row 5, column 'ds': 2024-01-01 03:20:00 follows 2024-01-01 02:00:00, but "
        "frequency 'h' expects 2024-01-01 03:00:00; correct the row or the frequency, or set gaps "
        "= 'skip' under [source]"
    )


def test_text_is_no_empty_cell(problem: Callable[..., str]) -> None:
    assert "'x' is not a finite number" in problem(bent(5, "2024-01-01 03:00:00,x,1"), FILL)


def test_business_days_are_filled_over_holidays(
    prepare_small: Prepare, task_file: Callable[..., Task]
) -> None:
    days = np.arange("2024-01-01", "2024-06-01", dtype="datetime64[D]")
    days = days[np.is_busday(days, holidays=["2024-04-01", "2024-05-01"])]
    lines = ["ds,a,b", *(f"{day},{i % 9},{i % 5}" for i, day in enumerate(days))]
    prepared = prepare_small(lines, FILL.replace('"h"', '"B"'))
    assert prepared.filled_rows == (2,)
