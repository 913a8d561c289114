"""The frequency of times that may have gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tuner.data.times import Times

SECOND, DAY = 1_000_000, 86_400_000_000
"""Microseconds."""
UNITS = ((3600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s"), (1000, "ms"), (1, "us"))
WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
MOST_MISSING = 20
"""Times the rows: a grid that is longer is none."""
SATURDAY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """A frequency, how many of its timestamps the times lack, and whether all times are its."""

    frequency: str
    missing: int
    regular: bool
    step_us: int
    """The usual step."""

    @property
    def within_a_day(self) -> bool:
        """Whether the usual step is shorter than a day."""
        return self.step_us < DAY


def rhythm_of(times: Times) -> Rhythm | None:
    """The frequency of ascending times, (R,); None for fewer than three, or repeated ones."""
    steps = np.diff(times).astype(np.int64)
    if len(steps) < 2 or (steps <= 0).any():  # noqa: PLR2004 - one step shows no rhythm
        return None
    sizes, counts = np.unique(steps, return_counts=True)
    usual = int(sizes[np.argmax(counts)])
    found = [_on(times, each, usual) for each in _candidates(times, usual)]
    return min(found, key=lambda each: (not each.regular, each.missing))


def rhythm_at(times: Times, frequency: str) -> Rhythm:
    """How ascending times, (R,), fit a frequency that was named."""
    return _on(times, frequency, step_of(frequency))


def _candidates(times: Times, step: int) -> Sequence[str]:
    days, rest = divmod(step, DAY)
    if days == 0 or rest:
        size, unit = next((size, unit) for size, unit in UNITS if step % size == 0)
        return [alias(step // size, unit)]
    if days == 1:
        weekend = (times.astype("datetime64[D]").astype(np.int64) + 3) % 7 >= SATURDAY
        return ["D"] if weekend.any() else ["B", "D"]
    first = pd.Timestamp(times[0])
    month, weekday = MONTHS[first.month - 1], WEEKDAYS[first.weekday()]
    found = [alias(days // 7, f"W-{weekday}")] if days % 7 == 0 else [alias(days, "D")]
    for lengths, aliases in (
        (range(28, 32), ("MS", "ME", "BMS", "BME")),
        (range(90, 93), (f"QS-{month}", f"QE-{month}")),
        (range(365, 367), (f"YS-{month}", f"YE-{month}")),
    ):
        if days in lengths:
            found = [*aliases, *found]
    return found


def alias(number: int, unit: str) -> str:
    """`number` units as pandas writes them."""
    return unit if number == 1 else f"{number}{unit}"


def step_of(frequency: str) -> int:
    """Microseconds from one timestamp of a frequency to the next."""
    steps = np.diff(pd.date_range("2001-01-01", periods=4, freq=frequency).to_numpy())
    return int(np.median(steps.astype("timedelta64[us]").astype(np.int64)))


def _on(times: Times, frequency: str, step: int) -> Rhythm:
    first, last = pd.Timestamp(times[0]), pd.Timestamp(times[-1])
    offset = pd.tseries.frequencies.to_offset(frequency)
    longest = MOST_MISSING * len(times)
    if isinstance(offset, pd.offsets.Tick):
        count = int((times[-1] - times[0]).astype(np.int64) // max(1, offset.nanos // 1000))
        if count > longest:
            return Rhythm(frequency=frequency, missing=longest, regular=False, step_us=step)
    grid = pd.date_range(first, last, freq=frequency).to_numpy().astype("datetime64[us]")
    regular = bool(np.isin(times, grid).all())
    return Rhythm(
        frequency=frequency, missing=max(0, len(grid) - len(times)), regular=regular, step_us=step
    )
