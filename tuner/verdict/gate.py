"""Whether a changed model is still as good as another, by pairs of trainings on shared seeds.

Of a figure's ratios over pairs the logarithms are tested, one-sided, against its margin: that it is
worse by more, and that it is not. Each of the two errors is spent over the looks in proportion to
the pairs, so that fewer looks, or fewer pairs at most, never err more. Decided by simulation
(benchmarks/verdict/gate.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tuner.spec.margin import MARGIN
from tuner.verdict.stats.intervals import LEAST_RUNS, Interval
from tuner.verdict.stats.noninferiority import misses_more, p_below, paired_ratio, shared
from tuner.verdict.verified import Sample

LOOKS = (10, 20, 40, 60, 90)
"""Pairs, after which it is looked whether the answer is clear."""
MOST_PAIRS = LOOKS[-1]
WRONGLY_WORSE = 0.05
"""The chance that anything is said to be worse that is not, over all looks."""
WRONGLY_GOOD = 0.05
"""The chance that a figure passes that is worse by its margin. What is as good passes in all."""
QUESTIONS = 3
"""Among which the first error is shared: MQL, time, and how often a training misses."""


class Answer(StrEnum):
    """What a gate says; of several answers the first of these that is there is that of all."""

    WORSE = "worse"
    UNDECIDED = "undecided"
    GOOD = "as good or better"


class Figure(StrEnum):
    """What is compared."""

    MQL = "MQL"
    TIME = "time to convergence"

    @property
    def margin(self) -> float:
        """How much worse still counts as good, relative."""
        return MARGIN if self is Figure.MQL else 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the pairs so far say; of two trainings each, the changed model's comes first."""

    pairs: int
    answer: Answer
    figures: Mapping[Figure, Answer]
    medians: Mapping[Figure, Sequence[float | None]]
    """MQL, or seconds; None where no run told."""
    ratios: Mapping[Figure, Interval | None]
    """The geometric mean over pairs, with its interval of 95 %; None of too few."""
    misses: Sequence[int]

    @property
    def decided(self) -> bool:
        """No more pairs are needed."""
        return self.answer is not Answer.UNDECIDED

    def sentence(self, new: str, old: str) -> str:
        """The answer, of what these two are called, in 25 words at most."""
        after = f"after {self.pairs} pairs of trainings"
        mine = [figure for figure, said in self.figures.items() if said is self.answer]
        if self.answer is Answer.GOOD:
            return f"{new} is as good as {old}, or better: {' and '.join(mine)} passed {after}."
        if self.answer is Answer.UNDECIDED:
            about = " and ".join(mine) or "how often it misses"
            return f"Undecided whether {new} is as good as {old} {after}: {about} may be worse."
        why = f"it misses {self.misses[0]} trainings, the other {self.misses[1]}"
        for figure in mine:
            ratio = self.ratios[figure]
            assert ratio is not None, "or nothing was shown"
            allowed = f"{100 * figure.margin:g} % is allowed"
            why = f"{figure} is {100 * (ratio.estimate - 1):.1f} % higher, {allowed}"
        return f"{new} is worse than {old} {after}: {why}."

    def table(self, new: str, old: str) -> list[str]:
        """The figures as lines of Markdown."""
        rows = [["", new, old, "ratio, 95 %", "allowed", ""], ["---"] * 6]
        for figure, said in self.figures.items():
            medians = [
                "unknown" if each is None else f"{each:.4g}" for each in self.medians[figure]
            ]
            ratio = f"{each:.3f}" if (each := self.ratios[figure]) else "unknown"
            rows.append([f"{figure}", *medians, ratio, f"{1 + figure.margin:g}", f"{said}"])
        rows.append(["missed", *map(str, self.misses), "", "", ""])
        return [f"| {' | '.join(each.replace('|', '¦') for each in row)} |" for row in rows]


def looks_until(most: int) -> tuple[int, ...]:
    """After how many pairs it is looked, of so many at most.

    >>> from tuner.verdict.gate import looks_until
    >>> looks_until(90), looks_until(30)
    ((10, 20, 40, 60, 90), (10, 20, 30))
    """
    return (*(each for each in LOOKS if each < most), min(most, MOST_PAIRS))


def judge(
    new: Sample, old: Sample, seeds: Sequence[int], *, most: int, only_mql: bool = False
) -> Judged | None:
    """The answer of the first look that has one, or else that of the last; None before the first.

    Args:
        new: the figures of the changed model, by seed: a training without an MQL missed.
        old: those of what it is held against.
        seeds: those on which both have run, in their order.
        most: pairs that there may be, `MOST_PAIRS` at most.
        only_mql: times mean nothing.
    """
    whole = {Figure.MQL: (new.mql, old.mql), Figure.TIME: (new.seconds, old.seconds)}
    figures = [Figure.MQL] if only_mql else list(Figure)
    passed: set[Figure] = set()
    found, before = None, 0
    for pairs in looks_until(most):
        if pairs > len(seeds):
            break
        share, before = (pairs - before) / MOST_PAIRS, pairs
        level, now = WRONGLY_WORSE / QUESTIONS * share, seeds[:pairs]
        both = {f: [{s: of[s] for s in now if s in of} for of in whole[f]] for f in whole}
        said = dict.fromkeys(figures, Answer.UNDECIDED)
        for figure in figures:
            above = _above_margin(*both[figure], margin=figure.margin)
            enough = len(above) >= LEAST_RUNS
            if enough and p_below(-above) < level:
                said[figure] = Answer.WORSE
            elif figure in passed or (enough and p_below(above) < WRONGLY_GOOD * share):
                passed.add(figure)
                said[figure] = Answer.GOOD
        misses = [pairs - len(mqls) for mqls in both[Figure.MQL]]
        more = misses_more((misses[0], pairs), (misses[1], pairs), one_in=math.ceil(1 / level))
        answers = {*said.values(), *([Answer.WORSE] if more else ())}
        found = Judged(
            pairs=pairs,
            answer=next(each for each in Answer if each in answers),
            figures=said,
            medians={f: [_median(of) for of in both[f]] for f in figures},
            ratios={figure: paired_ratio(*both[figure]) for figure in figures},
            misses=misses,
        )
        if found.decided:
            break
    return found


def _median(found: Mapping[int, float]) -> float | None:
    return float(np.median([*found.values()])) if found else None


def _above_margin(*both: Mapping[int, float], margin: float) -> Any:
    """By how much each pair's ratio is above what is allowed, as logarithms: (pairs,)."""
    x, y = shared(*both)
    there = (x > 0) & (y > 0)
    return np.log(x[there]) - np.log(y[there]) - math.log(1 + margin)
