"""Whether throughput falls while nothing about the work should change."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tuner.profile.profile_records import Trend

LEAST_FALL = 0.15
"""Of the throughput at the beginning: less is what machines do."""

CERTAIN = 0.005
"""Largest p of Kendall's test against no trend: stretches that differ at random have none."""

FEWEST = 10
"""Stretches, without which nothing is said."""


SETTLE = 8
"""Steps before the first that is timed."""


def trend_of(ticks: Sequence[float], steps: int) -> Trend:
    """Of seconds a step, from start to end.

    Args:
        ticks: the mean of each of equal stretches.
        steps: all of them together.

    Source: Kendall's rank correlation with time, and the Theil-Sen slope, which one slow stretch
    does not move.
    """
    if len(ticks) < FEWEST:
        return Trend(seconds=tuple(ticks), steps=steps)
    from scipy.stats import kendalltau, theilslopes

    part = max(2, len(ticks) // 5)
    begin, end = statistics.median(ticks[:part]), statistics.median(ticks[-part:])
    fall = 1 - begin / end if end > 0 else 0.0
    found = kendalltau(range(len(ticks)), ticks)
    falls = bool(fall >= LEAST_FALL and found.statistic > 0 and found.pvalue <= CERTAIN)
    slope = float(theilslopes(ticks).slope) / (steps / len(ticks)) if falls else 0.0
    return Trend(
        seconds=tuple(ticks), fall=max(0.0, fall), falls=falls, growth_s=slope, steps=steps
    )


def without_the_fall(trend: Trend, steps: int) -> tuple[float, float]:
    """Seconds that so many steps take from the start as they are, and at the first step's pace."""
    ticks = trend.seconds
    part = max(2, len(ticks) // 5)
    begin = statistics.median(ticks[:part])
    # From the beginning, not from the middle: what the slope is off counts for fewer steps.
    before = trend.steps * part / len(ticks) / 2 + SETTLE
    first = max(begin - trend.growth_s * before, begin * 0.01)
    return steps * first + trend.growth_s * steps**2 / 2, steps * first
