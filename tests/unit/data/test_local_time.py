from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.small_csv import TASK
from tuner.data.prepare import PreparedData
from tuner.data.source_kinds import FileSource
from tuner.data.times import TimeColumn, to_local, to_utc
from tuner.errors import DataError

BERLIN = "Europe/Berlin"


def where(zone: str = BERLIN) -> TimeColumn:
    return TimeColumn(source=FileSource(path=Path("x.csv"), timezone=zone))


LOCAL = TASK.replace('"h"', '"15min"') + f'timezone = "{BERLIN}"\n'


def shown(first: str, last: str, frequency: str = "15min", zone: str = BERLIN) -> np.ndarray:
    """What clocks in a zone showed from one moment to another, both UTC."""
    moments = pd.date_range(first, last, freq=frequency, tz="UTC")
    return moments.tz_convert(zone).tz_localize(None).to_numpy().astype("datetime64[us]")


def lines(times: np.ndarray) -> list[str]:
    return ["ds,a,b", *(f"{pd.Timestamp(t)},{i % 7},{i % 11}" for i, t in enumerate(times))]


@pytest.mark.parametrize("zone", [BERLIN, "America/New_York", "Australia/Sydney", "Europe/London"])
@pytest.mark.parametrize("frequency", ["15min", "30min", "h"])
def test_a_year_with_both_changes_is_taken_to_utc(zone: str, frequency: str) -> None:
    local = shown("2023-12-01", "2025-01-01", frequency, zone)
    assert len(np.unique(local)) < len(local)
    utc = to_utc(local, range(len(local)), where(zone))
    expected = pd.date_range("2023-12-01", "2025-01-01", freq=frequency)
    np.testing.assert_array_equal(utc, expected.to_numpy().astype("datetime64[us]"))
    np.testing.assert_array_equal(to_local(utc, zone), local)


def test_a_time_that_no_clock_showed_is_refused() -> None:
    local = np.array(["2024-03-31T01:45", "2024-03-31T02:00"], dtype="datetime64[us]")
    with pytest.raises(DataError, match=r"row 3, column 'ds': 2024-03-31 02:00:00 was never shown"):
        to_utc(local, [2, 3], where())


def test_an_hour_that_is_there_once_leaves_a_gap(problem: Callable[..., str]) -> None:
    times = shown("2024-10-26 12:00", "2024-10-28")
    once = np.unique(times)
    assert "gap: 2024-10-27 02:00:00 UTC follows 2024-10-27 00:45:00 UTC" in problem(
        lines(once), LOCAL
    )


def test_a_calendar_goes_by_what_clocks_show(prepare_small: Callable[..., PreparedData]) -> None:
    times = shown("2024-03-20", "2024-04-10")
    toml = LOCAL.replace("horizon = 2", 'horizon = 2\ncalendar = ["hour"]')
    prepared = prepare_small(lines(times), toml)
    hours = (times.astype("datetime64[h]").astype(np.int64) % 24)[: len(prepared.train.future)]
    np.testing.assert_allclose(
        prepared.train.future[:, 0], np.sin(2 * np.pi * hours / 24), atol=1e-6
    )


def test_times_with_offsets_keep_them(prepare_small: Callable[..., PreparedData]) -> None:
    utc = pd.date_range("2024-10-26", "2024-10-29", freq="15min", tz="UTC")
    with_offsets = ["ds,a,b"]
    with_offsets += [
        f"{time.isoformat()},{i % 7},{i % 11}" for i, time in enumerate(utc.tz_convert(BERLIN))
    ]
    without = prepare_small(lines(shown("2024-10-26", "2024-10-29")), LOCAL)
    assert prepare_small(with_offsets, LOCAL).data_hash == without.data_hash


def test_times_with_and_without_offsets_are_not_mixed(problem: Callable[..., str]) -> None:
    mixed = lines(shown("2024-06-01", "2024-06-03"))
    mixed[4] = mixed[4].replace(",", "+02:00,", 1)
    assert "row 5, column 'ds': some times have an offset" in problem(mixed, LOCAL)
