"""Sums and differences of means over independent runs, with Welch's interval.

Unlike pairs, the runs of two configurations need share no seed, and the spread of each may differ.
Source: Welch, "The generalization of 'Student's' problem when several different population
variances are involved", Biometrika 34 (1947).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.verdict.stats.intervals import CONFIDENCE, t_beyond

LEAST = 3
"""Runs of a mean: of two, one degree of freedom says next to nothing."""
_LARGEST_LOG = 700.0
"""Of a quotient that a float can hold."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Of so many runs. `cut`: a limit ended some of them, so that the true mean is greater."""

    value: float
    variance: float
    """Of the mean itself."""
    freedom: int
    cut: bool = False


def mean_of(values: Sequence[float], *, cut: bool = False) -> Mean | None:
    """None for fewer than `LEAST` values."""
    n = len(values)
    if n < LEAST:
        return None
    mean = math.fsum(values) / n
    spread = math.fsum((value - mean) ** 2 for value in values)
    return Mean(mean, spread / (n * (n - 1)), n - 1, cut)


@dataclass(frozen=True, slots=True)
class Change:
    """A factor, or a difference, with its 95 % interval.

    `clear`: it is there, also where `claims` such are looked at together (Bonferroni). `bound` is
    `at least`, `at most` or `unknown` where a limit cut runs off, else empty: then only the low
    end, the high end, or neither of them holds.
    """

    estimate: float
    low: float
    high: float
    clear: bool
    bound: str = ""

    def __format__(self, form: str) -> str:
        """As an interval is formatted: `1.90 [1.70, 2.10]` of `.2f`."""
        return f"{self.estimate:{form}} [{self.low:{form}}, {self.high:{form}}]"


def contrast(
    parts: Sequence[tuple[int, Mean | None]], *, factor: bool, claims: int = 1
) -> Change | None:
    """The sum of the means, each times its sign; None where one is not known. With `factor` they
    are means of logarithms, and the effect is a factor.

        >>> contrast([(1, mean_of(after)), (-1, mean_of(before))], factor=True)
    """
    known = [(sign, mean) for sign, mean in parts if mean is not None]
    if len(known) < len(parts):
        return None
    middle = math.fsum(sign * mean.value for sign, mean in known)
    variance = math.fsum(mean.variance for _, mean in known)
    half = wide = 0.0
    if variance > 0:
        freedom = variance**2 / sum(mean.variance**2 / mean.freedom for _, mean in known)
        share = (1 - CONFIDENCE) / 2
        half = t_beyond(share, freedom) * math.sqrt(variance)
        wide = t_beyond(share / claims, freedom) * math.sqrt(variance)
    bounds = {"at least" if sign > 0 else "at most" for sign, mean in known if mean.cut}
    bound = "unknown" if len(bounds) > 1 else "".join(bounds)
    above, below = middle - wide > 0, middle + wide < 0
    clear = {"at least": above, "at most": below, "unknown": False}.get(bound, above or below)
    ends = [middle, middle - half, middle + half]
    if factor:
        ends = [math.exp(max(min(end, _LARGEST_LOG), -_LARGEST_LOG)) for end in ends]
    return Change(ends[0], ends[1], ends[2], clear, bound)
