"""Frequencies: their names, the timestamps that one gives, and the one that fits given times.

A frequency is an alias of pandas. `MS+14D` is the fifteenth of each month: the grid of `MS`, so
many days later. `30min[B 09:00-17:00]` has only the steps within these hours, Monday to Friday;
with `D` in place of `B`, of each day.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.errors import DataError

Times = npt.NDArray[np.datetime64]

SECOND, DAY = 1_000_000, 86_400_000_000
"""Microseconds."""
_WRITTEN = re.compile(r"([^+\[\]]+)(?:\+(\d{1,3})D)?(?:\[([BD]) (\d\d:\d\d)-(\d\d:\d\d)\])?")


def frequency_problem(alias: str) -> str | None:
    """Why there is no frequency `alias`, such as an old spelling; None where there is."""
    known = _WRITTEN.fullmatch(alias)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if _offset(known[1] if known else alias).n >= 1 and known:
                return None
    except (ValueError, OverflowError, TypeError, Warning) as error:
        if new := re.search(r"(?:Did you mean|use) '?([A-Za-z-]+)", str(error)):
            number = re.sub(r"\D", "", alias)
            return f"{alias!r} is an old name of a frequency; write {number}{new[1]}"
    return f"{alias!r} is no pandas frequency; use for example 'h', '15min', 'D', 'W-SUN', 'MS'"


def _offset(alias: str) -> Any:
    return pd.tseries.frequencies.to_offset(alias)


def tick_us(frequency: str) -> int | None:
    """Microseconds of a step of always the same length, a day or less; None where there is none."""
    try:
        offset = _offset(frequency)
    except ValueError:  # one with days or hours behind it
        return None
    if isinstance(offset, pd.offsets.Day):
        return DAY * offset.n
    return offset.nanos // 1000 if isinstance(offset, pd.offsets.Tick) else None


def within_a_day(frequency: str) -> bool:
    """Whether one step of a frequency is shorter than a day."""
    return step_of(frequency) < DAY


def step_of(frequency: str) -> int:
    """Microseconds from one timestamp of a frequency to the next, usually."""
    base = re.split(r"[+[]", frequency)[0]
    if (tick := tick_us(base)) is not None:
        return max(1, tick)
    steps = np.diff(pd.date_range("2001-01-01", periods=4, freq=base).to_numpy())
    return int(np.median(steps.astype("timedelta64[us]").astype(np.int64)))


def grid(first: Any, frequency: str, *, periods: int | None = None, last: Any = None) -> Times:
    """The timestamps of a frequency from `first` on, (R,): so many, or up to `last`.

    Raises:
        DataError: they leave the calendar.
    """
    written = _WRITTEN.fullmatch(frequency)
    assert written is not None, "a checked frequency"
    base, days, which, opens, closes = written.groups()
    shift = pd.Timedelta(days=int(days or 0))
    open_to = (opens, closes, which == "B") if opens else None
    count = periods
    if periods is not None and open_to:  # as many weeks as these hours need, and two more
        weeks = pd.date_range("2001-01-01", periods=14 * DAY // step_of(base), freq=base)
        count = int(periods / max(_is_open(weeks, open_to).mean(), 1e-6)) + len(weeks)
    try:
        ends: dict[str, Any] = {"start": pd.Timestamp(first) - shift, "periods": count}
        if last is not None:
            ends["end"] = pd.Timestamp(last) - shift
        found: pd.DatetimeIndex = pd.date_range(**ends, freq=base) + shift
    except (pd.errors.OutOfBoundsDatetime, OverflowError, ValueError):
        raise DataError(f"{frequency!r} timestamps from {first} on leave the calendar") from None
    if open_to:
        found = found[_is_open(found, open_to)][:periods]
    return found.to_numpy().astype("datetime64[us]")


def _is_open(index: pd.DatetimeIndex, hours: tuple[str, str, bool]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(index), dtype=np.bool_)
    inside[index.indexer_between_time(*hours[:2])] = True
    return inside & (index.day_of_week < SATURDAY) if hours[2] else inside


# The frequency that fits: of all that a usual step allows, the one under which most rows lie on the
# grid, and the fewest of its timestamps are missing.


UNITS = (
    (DAY, "D"), (3600 * SECOND, "h"), (60 * SECOND, "min"), (SECOND, "s"), (1000, "ms"), (1, "us"),
)  # fmt: skip
SATURDAY = 5
MOST_MISSING = 20
"""Times the rows: a grid that is longer is none."""
LATE = 0.1
"""The share of a step that a row may be late or early where times are rounded."""
NICE = tuple(
    n * unit * SECOND for unit in (1, 60, 3600) for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30)
)  # fmt: skip
REGULAR = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A frequency, how many of its timestamps the times lack, and which times are none of its."""

    frequency: str
    score: float
    """On the grid, of all timestamps of rows and grid: 1 where they are the same."""
    missing: int = 0
    off: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rounded: bool = False
    """Whether times were late or early by little, and are taken as those of the grid."""

    @property
    def step_us(self) -> int:
        """The usual step."""
        return step_of(self.frequency)


def fit(times: Times, frequency: str | None = None) -> Fit | None:
    """The frequency of times, (R,), in any order; `frequency` where that is known. None for fewer
    than three different ones.
    """
    order = times if ascends(times) else np.unique(times)
    if len(order) < 3:  # noqa: PLR2004 - one step shows no rhythm
        return None
    named = [frequency] if frequency else list(_candidates(order))
    best = max((fit_to(order, each) for each in named), key=lambda each: each.score)
    if best.score < REGULAR and (late := _late(order, frequency)) and late.score > best.score:
        return late
    if best.score < REGULAR and frequency is None:
        hours = [fit_to(order, each) for each in _opening_hours(order)]
        return max([best, *hours], key=lambda each: each.score)
    return best


def ascends(times: Times) -> bool:
    """Whether each time is later than the one before."""
    return bool((times[1:] > times[:-1]).all())


def fit_to(times: Times, frequency: str) -> Fit:
    """Ascending times, (R,), against the grid of a frequency."""
    first, last = times[0], times[-1]
    tick = step_of(frequency)
    if len(times) > 1 and _step(times) == tick == tick_us(frequency):
        return Fit(frequency, 1.0)
    longest = MOST_MISSING * len(times) * tick
    if (last - first).astype(np.int64) > longest:
        off = np.flatnonzero(np.diff(times).astype(np.int64) > longest / 2) + 1
        return Fit(frequency, 0.0, off=off)
    found = _grid_of_most(times, frequency)
    on = np.isin(times, found)
    missing = len(found) - int(on.sum())
    return Fit(frequency, int(on.sum()) / (len(times) + missing), missing, np.flatnonzero(~on))


def _grid_of_most(times: Times, frequency: str) -> Times:
    """Through the time of day, or the place within a step, that most times have."""
    tick, first = min(step_of(frequency), DAY), int(times[0].astype(np.int64))
    start = first + (place_of_most(times, tick) - first) % tick
    return grid(np.datetime64(start, "us"), frequency, last=times[-1])


def place_of_most(times: Times, step: int) -> int:
    """The microsecond within a step, counted from 1970, at which most times are."""
    places, counts = np.unique(times.astype(np.int64) % step, return_counts=True)
    return int(places[np.argmax(counts)])


def _step(times: Times) -> int | None:
    """Between all ascending times, in microseconds; None where it is not always the same."""
    step = times[1] - times[0]
    return int(step.astype(np.int64)) if (times[1:] - times[:-1] == step).all() else None


def _candidates(times: Times) -> Iterator[str]:
    sizes, counts = np.unique(np.diff(times).astype(np.int64), return_counts=True)
    step = int(sizes[np.argmax(counts)])
    days = 0 if step % DAY else step // DAY
    if days == 1:
        weekend = (times.astype("datetime64[D]").astype(np.int64) + 3) % 7 >= SATURDAY
        yield from [] if weekend.any() else ["B"]
    if days < 2:  # noqa: PLR2004 - what is coarser may be one of the calendar's
        yield _alias(step)
        return
    dates = pd.DatetimeIndex(times)
    for lengths, starts, ends in (
        (range(28, 32), "MS", "ME"),
        (range(59, 63), "2MS", "2ME"),
        (range(90, 93), "QS-{}", "QE-{}"),
        (range(181, 185), "2QS-{}", "2QE-{}"),
        (range(365, 367), "YS-{}", "YE-{}"),
    ):
        if days in lengths:
            month = dates[0].month_name()[:3].upper()
            start, end = starts.format(month), ends.format(month)
            later = int(np.bincount(dates.day).argmax()) - 1
            yield from (start, end, *((f"B{start}", f"B{end}") if start == "MS" else ()))
            if 0 < later < 28:  # noqa: PLR2004 - the days that each month has
                yield f"{start}+{later}D"
    if days % 7 == 0:
        weeks = "" if days == 7 else days // 7  # noqa: PLR2004 - one week
        yield f"{weeks}W-{dates[0].day_name()[:3].upper()}"
    yield _alias(step)


def _late(times: Times, frequency: str | None) -> Fit | None:
    """The grid of a plain step that nearly all times are near."""
    middle = float(np.median(np.diff(times).astype(np.int64)))
    step = min((*NICE, DAY), key=lambda each: abs(each - middle))
    if frequency is not None and tick_us(frequency) != step:
        return None
    whole = times.astype(np.int64)
    near = (whole + step // 2) // step * step
    if (np.abs(whole - near) > LATE * step).any() or len(np.unique(near)) < len(near):
        return None
    return replace(fit_to(near.astype("datetime64[us]"), _alias(step)), rounded=True)


def rounded(times: Times, frequency: str) -> Times:
    """Times as those of a frequency's grid that are nearest, (R,)."""
    step = step_of(frequency)
    whole = (times.astype(np.int64) + step // 2) // step * step
    return whole.astype("datetime64[us]")


def _opening_hours(times: Times) -> Iterator[str]:
    """The usual step, from the first time of day to the last."""
    usual = next(iter(_candidates(times)))
    if not within_a_day(usual):
        return
    dates = pd.DatetimeIndex(times)
    clocks = pd.Series(dates.strftime("%H:%M")).value_counts()
    often = sorted(clocks.index[clocks >= clocks.median() / 2])
    which = "B" if (dates.day_of_week < SATURDAY).mean() > REGULAR else "D"
    if len(often) > 1:
        yield f"{usual}[{which} {often[0]}-{often[-1]}]"


def _alias(step: int) -> str:
    """So many microseconds as pandas writes them."""
    size, unit = next((size, unit) for size, unit in UNITS if step % size == 0)
    return unit if step == size else f"{step // size}{unit}"


# How many rows the season of a frequency has: the cycle that a naive forecast repeats.


_ROWS = {"D": 7, "B": 5, "W": 52, "MS": 12, "ME": 12, "BMS": 12, "BME": 12, "QS": 4, "QE": 4}
"""Of calendar frequencies: a week of days, a year of weeks, months or quarters."""


def season_rows(frequency: str) -> int | None:
    """Rows of a day for what is finer than one, of a week for days, of a year for what is coarser;
    None where nothing of the kind is known.

    Args:
        frequency: such as `h`, `15min`, `D`, `W-SUN`.
    """
    if frequency == "h":
        return 24
    if "[" in frequency:
        return len(grid("2001-01-01", frequency, last="2001-01-02")) or None
    tick = tick_us(base := frequency.partition("+")[0])
    if tick is not None and tick < DAY:
        return DAY // tick if DAY % tick == 0 else None
    return _ROWS.get(base.partition("-")[0])
