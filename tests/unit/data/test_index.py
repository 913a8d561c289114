"""Files without times, and without a header."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.small_csv import TASK, csv_lines
from tuner.data.prepare import PreparedData
from tuner.data.recent_rows import Scaling, last_windows
from tuner.data.task import Task, load_task
from tuner.errors import DataError, UsageError

INDEX = TASK + "index = true\n"
DATED = INDEX.replace("horizon = 2", 'horizon = 2\ncalendar = ["hour"]') + 'start = "2024-01-01"\n'
SCALING = Scaling(minimum=np.zeros((1, 2)), scale=np.ones((1, 2)))


def without_times(rows: int = 60) -> list[str]:
    return [line.partition(",")[2] for line in csv_lines(rows)]


def test_rows_without_times_are_counted(prepare_small: Callable[..., PreparedData]) -> None:
    counted, timed = prepare_small(without_times(), INDEX), prepare_small(csv_lines(60))
    np.testing.assert_array_equal(counted.train.targets, timed.train.targets)
    assert counted.data_hash != timed.data_hash


def test_a_start_dates_them(prepare_small: Callable[..., PreparedData]) -> None:
    timed = TASK.replace("horizon = 2", 'horizon = 2\ncalendar = ["hour"]')
    np.testing.assert_array_equal(
        prepare_small(without_times(), DATED).test.future,
        prepare_small(csv_lines(60), timed).test.future,
    )


def test_columns_without_a_header_are_numbered(prepare_small: Callable[..., PreparedData]) -> None:
    toml = INDEX.replace('["a", "b"]', '["column_1", "column_2"]') + "header = false\n"
    bare = prepare_small(without_times()[1:], toml)
    np.testing.assert_array_equal(
        bare.train.targets, prepare_small(without_times(), INDEX).train.targets
    )


def test_a_column_whose_header_is_empty_is_called_by_its_number(
    prepare_small: Callable[..., PreparedData],
) -> None:
    lines = csv_lines(60)
    lines[0] = ",a,b"
    renamed = prepare_small(lines, TASK + 'time_column = "column_1"\n')
    np.testing.assert_array_equal(renamed.train.targets, prepare_small(csv_lines(60)).train.targets)


def test_a_short_row_is_measured_by_the_first_one(problem: Callable[..., str]) -> None:
    toml = INDEX.replace('["a", "b"]', '["column_1", "column_2"]') + "header = false\n"
    lines = without_times()[1:]
    lines[7] = "1"
    assert problem(lines, toml) == (
        "small.csv, row 8: the row has 1 cells, the first row has 2; correct the row"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('index = true\ntime_column = "ds"\n', "index = true says that the file has no times"),
        ('start = "2024-01-01"\n', "belongs to index = true"),
        ('index = true\nstart = "soon"\n', "a date such as '1990-01-01' is expected, got 'soon'"),
        ('index = true\ntimezone = "Europe/Berlin"\n', "belongs to times"),
        ('index = true\ngaps = "skip"\n', "the rows of an index are counted"),
        ('timezone = "Berlin"\n', "unknown time zone 'Berlin'"),
        ('timezone = "../etc/passwd"\n', "unknown time zone"),
        ('gaps = "guess"\n', "should be 'refuse', 'fill' or 'skip'"),
        ('gaps = "skip"\nfill = "interpolate"\n', "set gaps = 'fill' as well"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "small.toml").write_text(TASK + more, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_task(str(tmp_path / "small.toml"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_calendar_needs_a_start(tmp_path: Path) -> None:
    text = DATED.replace('start = "2024-01-01"\n', "")
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"line 6: key 'calendar': index = true: the rows have no"):
        load_task(str(tmp_path / "small.toml"))


def test_a_time_zone_is_for_steps_within_a_day(tmp_path: Path) -> None:
    text = TASK.replace('"h"', '"D"') + 'timezone = "Europe/Berlin"\n'
    (tmp_path / "small.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="days have no daylight saving; leave timezone out"):
        load_task(str(tmp_path / "small.toml"))


def test_a_start_off_the_frequency_is_refused(problem: Callable[..., str]) -> None:
    toml = INDEX.replace('"h"', '"W-SUN"') + 'start = "1990-01-01"\n'
    assert "start '1990-01-01' does not fit frequency 'W-SUN'" in problem(without_times(), toml)


def test_rows_beyond_the_calendar_are_refused(problem: Callable[..., str]) -> None:
    toml = INDEX.replace('"h"', '"10000000D"') + 'start = "1990-01-01"\n'
    assert "leave the calendar" in problem(without_times(60), toml)


def test_a_forecast_of_an_index_counts_on(task_file: Callable[..., Task]) -> None:
    task = task_file(without_times(), INDEX)
    frame = pd.DataFrame({"a": range(10), "b": range(10)})
    assert last_windows(task, ["small"], frame, SCALING).times.tolist() == [[10, 11]]
    frame["row"] = range(50, 60)
    assert last_windows(task, ["small"], frame, SCALING).times.tolist() == [[60, 61]]


def test_a_forecast_with_a_calendar_needs_the_rows_numbers(task_file: Callable[..., Task]) -> None:
    task = task_file(without_times(), DATED)
    frame = pd.DataFrame({"a": range(10), "b": range(10)})
    with pytest.raises(DataError, match="the table has no column 'row'; the calendar needs"):
        last_windows(task, ["small"], frame, SCALING)
    frame["row"] = range(24, 34)
    future = last_windows(task, ["small"], frame, SCALING).future[0]
    np.testing.assert_allclose(future[:, 0], np.sin(2 * np.pi * np.array([10, 11]) / 24), atol=1e-6)
    frame["row"] = [*range(24, 33), 40]
    with pytest.raises(DataError, match="does not count the rows of a series"):
        last_windows(task, ["small"], frame, SCALING)


def test_a_forecast_in_local_time_has_its_calendar(task_file: Callable[..., Task]) -> None:
    toml = TASK.replace("horizon = 2", 'horizon = 2\ncalendar = ["hour"]')
    task = task_file(csv_lines(60), toml + 'timezone = "Europe/Berlin"\n')
    clock = pd.date_range("2024-10-26 22:00", periods=10, freq="h", tz="UTC")
    local = clock.tz_convert("Europe/Berlin").tz_localize(None)
    frame = pd.DataFrame({"ds": local.astype(str), "a": range(10), "b": range(10)})
    windows = last_windows(task, ["small"], frame, SCALING)
    assert [str(time)[:16] for time in windows.times[0]] == ["2024-10-27T08:00", "2024-10-27T09:00"]
    hours = np.array([9, 10])
    np.testing.assert_allclose(windows.future[0][:, 0], np.sin(2 * np.pi * hours / 24), atol=1e-6)


def test_a_forecast_over_skipped_rows_goes_on_from_the_last(task_file: Callable[..., Task]) -> None:
    task = task_file(csv_lines(60), TASK.replace('"h"', '"B"') + 'gaps = "skip"\n')
    days = pd.bdate_range("2024-04-22", periods=10).drop([pd.Timestamp("2024-05-01")])
    frame = pd.DataFrame({"ds": days, "a": range(9), "b": range(9)})
    times = last_windows(task, ["small"], frame, SCALING).times[0]
    assert [str(time)[:10] for time in times] == ["2024-05-06", "2024-05-07"]
