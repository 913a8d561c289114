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
    `ahead` are rows after the last one with targets, in which only what is known ahead is there.
    """

    name: str
    timestamps: npt.NDArray[np.datetime64]
    values: npt.NDArray[np.float64]
    clock: npt.NDArray[np.datetime64] | None = None
    filled_rows: int = 0
    filled_cells: int = 0
    ahead: Series | None = None


# Calendar covariates: a sine and a cosine for each cycle, from timestamps alone.


MONDAY = np.datetime64("1970-01-05")
CYCLES = {
    "minute": (60, "m", "h"),
    "hour": (24, "h", "D"),
    "day_of_week": (7, "D", ""),
    "day_of_month": (31, "D", "M"),
    "day_of_year": (366, "D", "Y"),
    "month": (12, "M", "Y"),
    "quarter": (4, "M", "Y"),
}
"""How many places each cycle has, of which unit, and since what they are counted, from 0 on."""


def calendar_columns(
    timestamps: npt.NDArray[np.datetime64], cycles: Sequence[str]
) -> npt.NDArray[np.float64]:
    """Sine and cosine of 2·pi·position/period for each cycle, (R, 2 * len(cycles)), in order."""
    columns = np.empty((len(timestamps), 2 * len(cycles)), dtype=np.float64)
    for position, cycle in enumerate(cycles):
        period, unit, of = CYCLES[cycle]
        times = timestamps.astype(f"datetime64[{unit}]")
        first = timestamps.astype(f"datetime64[{of}]").astype(times.dtype) if of else MONDAY
        place = (times - first).astype(np.int64) // (3 if cycle == "quarter" else 1) % period
        angle = 2.0 * np.pi * np.arange(period) / period
        columns[:, 2 * position] = np.sin(angle)[place]
        columns[:, 2 * position + 1] = np.cos(angle)[place]
    return columns
