"""Local time with daylight saving, taken to UTC: what stands twice in autumn is told apart by its
order, what no clock showed in spring is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.times import TimeColumn, Times
from tuner.errors import DataError


def to_utc(local: Times, rows: Sequence[int], zone: str, where: TimeColumn) -> Times:
    """Local times of one series, in the order of the file, as UTC, (R,) datetime64[us].

    Of the times that a clock shows twice, the first ones are daylight saving time; from where they
    begin again, they are standard time.

    Args:
        local: what clocks showed, (R,).
        rows: where each stands in the file.
        zone: an IANA name.
        where: the column.

    Raises:
        DataError: a time that no clock in `zone` showed.
    """
    clock = pd.DatetimeIndex(local)
    summer = _is_summer(local, _shown_twice(clock, zone))
    found = clock.tz_localize(zone, ambiguous=summer, nonexistent="NaT")
    never = np.flatnonzero(found.isna())
    if never.size:
        first = int(never[0])
        raise DataError(
            f"{where.at(rows[first])}: {pd.Timestamp(local[first])} was never shown by a clock in "
            f"{zone}, which went forward then; correct timezone under [source], or leave it out "
            "where the times are UTC or standard time"
        )
    return _plain(found.tz_convert("UTC"))


def to_local(utc: Times, zone: str) -> Times:
    """What clocks in `zone` showed, (R,) datetime64[us]."""
    return _plain(pd.DatetimeIndex(utc).tz_localize("UTC").tz_convert(zone))


def _shown_twice(clock: pd.DatetimeIndex, zone: str) -> npt.NDArray[np.bool_]:
    lost = clock.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    return np.asarray(lost.isna(), dtype=np.bool_)


def _is_summer(local: Times, twice: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which of the times that are shown twice are shown for the first time, (R,)."""
    summer = np.zeros(len(local), dtype=np.bool_)
    before = -2
    for position in np.flatnonzero(twice):
        first_of_the_night = position != before + 1
        went_back = not first_of_the_night and local[position] <= local[before]
        summer[position] = first_of_the_night or (bool(summer[before]) and not went_back)
        before = int(position)
    return summer


def _plain(index: pd.DatetimeIndex) -> Times:
    times: Times = index.tz_localize(None).to_numpy().astype("datetime64[us]")
    return times
