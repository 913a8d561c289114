"""Sums and differences of means over independent runs, with Welch's interval.

Unlike pairs, the runs of two configurations need share no seed, and the spread of each may differ.
Source: Welch, "The generalization of 'Student's' problem when several different population
variances are involved", Biometrika 34 (1947).
"""

from __future__ import annotations

import math
import statistics
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
    cut: bool


def mean_of(values: Sequence[float], cut: bool = False) -> Mean | None:
    """None for fewer than `LEAST` values."""
    n = len(values)
    if n < LEAST:
        return None
    return Mean(statistics.fmean(values), statistics.variance(values) / n, n - 1, cut)


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
    bound: str

    def __format__(self, form: str) -> str:
        """As an interval is formatted, `1.90 [1.70, 2.10]`, or as a bound, `at least 1.70`."""
        ends = {"at least": self.low, "at most": self.high}
        if self.bound in ends:
            return f"{self.bound} {ends[self.bound]:{form}}"
        return self.bound or f"{self.estimate:{form}} [{self.low:{form}}, {self.high:{form}}]"


def contrast(
    parts: Sequence[tuple[int, Mean | None]], *, factor: bool, claims: int = 1
) -> Change | None:
    """The sum of the means, each times its sign; None where one is not known. With `factor` they
    are means of logarithms, and the change is a factor.

        >>> contrast([(1, mean_of(after)), (-1, mean_of(before))], factor=True)
    """
    known = [(sign, mean) for sign, mean in parts if mean is not None]
    if len(known) < len(parts):
        return None
    middle = math.fsum(sign * mean.value for sign, mean in known)
    variance = math.fsum(mean.variance for _, mean in known)
    # Without any spread there is nothing to be sure of.
    welch = math.fsum(mean.variance**2 / mean.freedom for _, mean in known)
    freedom, share = variance**2 / welch if welch else 1.0, (1 - CONFIDENCE) / 2
    half, wide = (t_beyond(each, freedom) * variance**0.5 for each in (share, share / claims))
    bounds = {"at least" if sign > 0 else "at most" for sign, mean in known if mean.cut}
    bound = "unknown" if len(bounds) > 1 else "".join(bounds)
    above, below = middle - wide > 0, middle + wide < 0
    clear = {"": above or below, "at least": above, "at most": below}.get(bound, False)
    ends = [middle, middle - half, middle + half]
    if factor:
        ends = [math.exp(max(min(end, _LARGEST_LOG), -_LARGEST_LOG)) for end in ends]
    return Change(ends[0], ends[1], ends[2], clear, bound)
