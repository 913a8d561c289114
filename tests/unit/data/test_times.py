"""Timestamps of a CSV: what is wrong with them is said by row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.small_csv import TASK, bent, csv_lines
from tuner.data.prepare import PreparedData

Prepare = Callable[..., PreparedData]


def test_unsorted_timestamps_are_named_by_row(problem: Callable[..., str]) -> None:
    lines = csv_lines(60)
    lines[9], lines[10] = lines[10], lines[9]
    assert problem(lines) == (
        "small.csv, row 11, column 'ds': unsorted timestamps: "
        "2024-01-01 08:00:00 comes after 2024-01-01 09:00:00; sort the rows by time; "
        "if the file holds several series, set id_column under [source]"
    )


def test_duplicate_timestamps_are_named_by_row(problem: Callable[..., str]) -> None:
    assert problem(bent(8, "2024-01-01 05:00:00,1,1")) == (
        "small.csv, row 8, column 'ds': duplicate timestamp 2024-01-01 05:00:00 (also in row 7); "
        "keep one row per timestamp; if the file holds several series, "
        "set id_column under [source]"
    )


def test_a_gap_is_named_by_row(problem: Callable[..., str]) -> None:
    lines = csv_lines(60)
    del lines[20:22]
    assert problem(lines) == (
        "small.csv, row 21, column 'ds': gap: 2024-01-01 21:00:00 follows 2024-01-01 18:00:00, "
        "but frequency 'h' expects 2024-01-01 19:00:00; "
        "fill in the missing rows, set gaps under [source], or correct the frequency"
    )


def test_timestamps_closer_than_the_frequency_are_named(problem: Callable[..., str]) -> None:
    for coarse in ("2h", "YS"):
        said = problem(csv_lines(60), TASK.replace('"h"', f'"{coarse}"'))
        assert (
            f"too soon: 2024-01-01 01:00:00 follows 2024-01-01 00:00:00, but frequency '{coarse}'"
            in said
        )
        assert "row 3, column 'ds'" in said


def test_timestamps_that_do_not_fit_the_frequency_are_named(problem: Callable[..., str]) -> None:
    assert (
        "row 2, column 'ds': 2024-01-01 00:00:00 does not fit frequency 'W-SUN', "
        "whose next timestamp is 2024-01-07"
        in (problem(csv_lines(60), TASK.replace('"h"', '"W-SUN"')))
    )


@pytest.mark.parametrize("cell", ["yesterday", "", "01/13/2024", "NaT"])
def test_a_cell_that_is_no_timestamp_is_named(problem: Callable[..., str], cell: str) -> None:
    assert problem(bent(4, f"{cell},1,1")) == (
        f"small.csv, row 4, column 'ds': {cell!r} is not an ISO 8601 timestamp such as "
        '2016-07-01 00:00:00; correct the cell or set time_format (such as "%d.%m.%Y %H:%M") '
        "under [source]"
    )


def test_a_cell_that_is_not_in_the_given_time_format_is_named(problem: Callable[..., str]) -> None:
    said = problem(csv_lines(60), TASK + 'time_format = "%d.%m.%Y %H:%M"\n')
    assert said == (
        "small.csv, row 2, column 'ds': "
        "'2024-01-01 00:00:00' is not %d.%m.%Y %H:%M; correct the cell"
    )


def test_offsets_are_converted_to_utc(prepare_small: Prepare) -> None:
    toml = TASK.replace("horizon = 2", 'horizon = 2\ncalendar = ["hour"]')
    plain = csv_lines(60)
    shifted = [plain[0], *(line.replace(":00:00,", ":00:00+02:00,") for line in plain[1:])]
    here, there = prepare_small(plain, toml).train.future, prepare_small(shifted, toml).train.future
    np.testing.assert_allclose(there[2:], here[:-2], atol=1e-6)
