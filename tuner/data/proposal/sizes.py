"""How far to look back and ahead, and which cycles of the calendar, by frequency and length."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.data.proposal.rhythm import DAY, SECOND
from tuner.data.split_rows import split_sizes
from tuner.errors import DataError

SPLIT = (0.6, 0.2, 0.2)
YEAR_US = 366 * DAY
ORIGINS = 4
"""Horizons that the shortest split should hold after the first input: one forecast is no test."""
LEAST_INPUT = 2
MOST_OF_A_DAY = 96
BUSINESS = "B"
_USUAL = ((360, (12, 3)), (80, (16, 4)), (27, (36, 12)), (6, (52, 8)), (1, (56, 14)))
"""By the days of a step: years, quarters, months, weeks, days; rows of input and of horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Rows that are seen and rows that are forecast; `shortened` where the file was too short for
    what is usual.
    """

    input_size: int
    horizon: int
    shortened: bool


def usual_sizes(frequency: str, step_us: int) -> tuple[int, int]:
    """Rows of input and horizon that people use at a frequency: a week for a day, and the like."""
    if frequency == BUSINESS:
        return 60, 10
    for at_least_days, rows in _USUAL:
        if step_us >= at_least_days * DAY:
            return rows
    a_day = max(2, min(MOST_OF_A_DAY, round(DAY / step_us)))
    return 7 * a_day, a_day


def sizes_for(
    rows: int,
    usual: tuple[int, int],
    *,
    input_size: int | None,
    horizon: int | None,
    name: str,
) -> Sizes:
    """What is usual, as long as the shortest split of `rows` rows holds an input and some horizons;
    what was asked for stays as it is.

    Raises:
        DataError: the series, called `name`, is too short for any.
    """
    shortest = min(split_sizes(rows, SPLIT))
    ahead = horizon or usual[1]
    while horizon is None and ahead > 1 and (2 + ORIGINS) * ahead > shortest:
        ahead //= 2
    look = input_size or min(usual[0], max(LEAST_INPUT, shortest - ORIGINS * ahead))
    if look + ahead > shortest and input_size is None and horizon is None:
        raise DataError(
            f"{name} has {rows} rows, and its shortest split {shortest}: too few for any window; "
            "give more rows"
        )
    return Sizes(
        input_size=look,
        horizon=ahead,
        shortened=look < (input_size or usual[0]) or ahead < (horizon or usual[1]),
    )


def calendar_for(step_us: int, span_us: int) -> tuple[str, ...]:
    """Cycles that repeat within the file and are longer than a step, shortest first."""
    found = []
    if step_us < 3600 * SECOND:
        found.append("minute")
    if step_us < DAY:
        found.append("hour")
    if step_us <= DAY and span_us >= 14 * DAY:
        found.append("day_of_week")
    if span_us >= YEAR_US:
        found.append("quarter" if step_us >= 80 * DAY else "month")
    return () if step_us >= 360 * DAY else tuple(found)
