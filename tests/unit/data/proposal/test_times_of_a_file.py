"""The times in a file are found out: their form, their frequency, their gaps and their zone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import strangers_data as strangers
from tests.support.proposed_tasks import hourly, lines_to, prepared_by, proposal_for
from tuner.data.proposal.sheet import Told
from tuner.errors import UsageError


def test_missing_hours_are_filled(tmp_path: Path) -> None:
    lines = hourly()
    del lines[100:104]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.source["gaps"] == "fill"
    assert prepared_by(tmp_path / "x.csv", found, tmp_path).filled_rows == (4,)


@pytest.mark.parametrize(
    ("frequency", "calendar", "usual"),
    [
        ("min", ("minute", "hour"), (672, 96)),
        ("h", ("hour", "day_of_week", "month"), (168, 24)),
        ("2h", ("hour", "day_of_week", "month"), (84, 12)),
        ("D", ("day_of_week", "month"), (56, 14)),
        ("B", ("day_of_week", "month"), (60, 10)),
        ("W-SUN", ("month",), (52, 8)),
        ("W-WED", ("month",), (52, 8)),
        ("MS", ("month",), (36, 12)),
        ("ME", ("month",), (36, 12)),
        ("QS-JAN", ("quarter",), (16, 4)),
        ("QE-MAR", ("quarter",), (16, 4)),
        ("YS-JAN", (), (12, 3)),
    ],
)
def test_each_frequency_is_recognised(
    tmp_path: Path, frequency: str, calendar: tuple[str, ...], usual: tuple[int, int]
) -> None:
    rows = 9000 if frequency in ("min", "h", "2h") else 250 if frequency[0] in "QY" else 1500
    times = pd.date_range(
        "1890-01-01" if rows < 9000 else "2000-01-01", periods=rows, freq=frequency
    )
    values = np.sin(np.arange(rows) / 3)
    lines = ["when,y", *(f"{t:%Y-%m-%d %H:%M},{v:.3f}" for t, v in zip(times, values, strict=True))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.frequency, found.calendar) == (frequency, calendar)
    assert (found.sizes.input_size, found.sizes.horizon) == usual
    assert not found.guesses


def test_days_and_months_are_told_apart_by_their_steps(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=200)
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        lines = ["date,y", *(f"{day:{form}},{i % 9}" for i, day in enumerate(days))]
        found = proposal_for(lines_to(tmp_path / "x.csv", lines))
        assert (found.source["time_format"], found.frequency) == (form, "D")


def test_days_as_whole_numbers_are_times(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=200)
    lines = ["date,y", *(f"{day:%Y%m%d},{i % 9}" for i, day in enumerate(days))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.source["time_format"], found.frequency) == ("%Y%m%d", "D")


def test_irregular_times_are_skipped_over(tmp_path: Path) -> None:
    minutes = [60 * i + 7 * (i % 3) for i in range(300)]
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, "min")
    lines = ["ds,y", *(f"{time},{i % 9}" for i, time in enumerate(times))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.source["gaps"] == "skip"
    prepared_by(tmp_path / "x.csv", found, tmp_path)


def test_days_and_times_of_day_in_two_columns_are_joined(tmp_path: Path) -> None:
    times = pd.date_range("2024-01-01", periods=400, freq="h")
    lines = ["Date,Time,y", *(f"{t:%d/%m/%Y},{t:%H:%M:%S},{i % 9}" for i, t in enumerate(times))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.source["time_column"] == ["Date", "Time"]
    assert (found.source["time_format"], found.frequency) == ("%d/%m/%Y %H:%M:%S", "h")
    prepared_by(tmp_path / "x.csv", found, tmp_path)


@pytest.mark.parametrize(("form", "unit"), [("unix", 1), ("unix_ms", 1000)])
def test_unix_time_is_time(form: str, unit: int, tmp_path: Path) -> None:
    lines = ["when,y", *(f"{(1_700_000_000 + 3600 * i) * unit},{i % 9}" for i in range(400))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.targets, found.frequency) == (("y",), "h")
    assert found.source["time_format"] == form


def test_series_in_local_time_below_each_other_are_told_apart(tmp_path: Path) -> None:
    utc = pd.date_range("2024-01-01", "2024-12-31", freq="h", tz="UTC")
    lines = ["time,site,y"]
    for site in "xyz":
        local = utc.tz_convert("America/New_York")
        lines += [f"{t:%Y-%m-%d %H:%M},{site},{i % 17}" for i, t in enumerate(local)]
    file = lines_to(tmp_path / "x.csv", lines)
    found = proposal_for(file)
    assert (found.source["id_column"], found.source["timezone"]) == ("site", "America/New_York")
    assert prepared_by(file, found, tmp_path).series == ("x", "y", "z")


def test_days_that_could_be_months_are_asked_about(tmp_path: Path) -> None:
    days = [f"{day:02d}/{day:02d}/2024" for day in range(1, 13)]
    times = [f"{day} {hour:02d}:00" for day in days for hour in range(24)]
    file = lines_to(tmp_path / "x.csv", ["date,y", *(f"{t},{i % 9}" for i, t in enumerate(times))])
    guesses = {guess.key: guess for guess in proposal_for(file).guesses}
    assert guesses["time_format"].choices == ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")
    told = Told(time_format="%m/%d/%Y %H:%M")
    found = proposal_for(file, told)
    assert found.source["time_format"] == "%m/%d/%Y %H:%M"
    assert "time_format" not in {guess.key for guess in found.guesses}


def test_an_unknown_time_zone_is_refused(tmp_path: Path) -> None:
    file = strangers.quarter_hours_in_local_time(tmp_path)
    with pytest.raises(UsageError, match="unknown time zone 'Berlin'"):
        proposal_for(file, Told(timezone="Berlin"))
    assert not proposal_for(file, Told(timezone="Europe/Paris")).guesses
