"""One time series as it was read, and the calendar's columns of its times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """A named, gap-free series in original units.

    `timestamps` is (R,) datetime64[us] without a time zone; `values` is (R, C + P + known) float64,
    all finite: targets, past covariates, then future covariates, in the task's order. `clock` (R,)
    is what clocks showed at those times, where that is not the same; the calendar goes by it.
    `filled_rows` were missing and are made up, and so are `filled_cells` of rows that are there.
    """

    name: str
    timestamps: npt.NDArray[np.datetime64]
    values: npt.NDArray[np.float64]
    clock: npt.NDArray[np.datetime64] | None = None
    filled_rows: int = 0
    filled_cells: int = 0


# Calendar covariates: a sine and a cosine for each cycle, from timestamps alone.


PERIODS = {
    "minute": 60,
    "hour": 24,
    "day_of_week": 7,
    "day_of_month": 31,
    "day_of_year": 366,
    "month": 12,
    "quarter": 4,
}
"""Length of each cycle in its own unit, counted from 0: at Monday, the first day, January."""


def calendar_columns(
    timestamps: npt.NDArray[np.datetime64], cycles: Sequence[str]
) -> npt.NDArray[np.float64]:
    """Sine and cosine of 2·pi·position/period for each cycle, (R, 2 * len(cycles)), in order."""
    columns = np.empty((len(timestamps), 2 * len(cycles)), dtype=np.float64)
    for position, cycle in enumerate(cycles):
        angle = 2.0 * np.pi * _position(timestamps, cycle) / PERIODS[cycle]
        columns[:, 2 * position] = np.sin(angle)
        columns[:, 2 * position + 1] = np.cos(angle)
    return columns


def _position(timestamps: npt.NDArray[np.datetime64], cycle: str) -> npt.NDArray[np.int64]:
    """Zero-based position of each timestamp within its cycle, (R,)."""
    days = timestamps.astype("datetime64[D]")
    months = timestamps.astype("datetime64[M]")
    month = months.astype(np.int64) % 12
    since_month = days - months.astype("datetime64[D]")
    since_year = days - timestamps.astype("datetime64[Y]").astype("datetime64[D]")
    positions: dict[str, npt.NDArray[np.int64]] = {
        "minute": timestamps.astype("datetime64[m]").astype(np.int64) % 60,
        "hour": timestamps.astype("datetime64[h]").astype(np.int64) % 24,
        "day_of_week": (days.astype(np.int64) + 3) % 7,  # 1970-01-01 was a Thursday
        "day_of_month": since_month.astype(np.int64),
        "day_of_year": since_year.astype(np.int64),
        "month": month,
        "quarter": month // 3,
    }
    return positions[cycle]
