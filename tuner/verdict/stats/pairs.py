"""Configurations held against each other on the same seeds:
effects, tests, and what may be claimed.

Time is compared as a ratio, so it is tested on the log scale; MQL as a difference. A claim needs
two things: the paired test after Holm's correction over all questions of its family and both
objectives, and that the better one did not miss more often. Misses (runs that did not converge) are
counted and never turned into numbers: a pair with a miss is left out. The interval is what the
deciding test does not reject, at the level at which Holm's steps came to it: it leaves out "no
difference" where the test finds one, and nowhere else. That two are surely close follows from it,
too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.spec.margin import MARGIN
from tuner.verdict.stats.intervals import (
    LEAST_RUNS,
    MQL,
    SECONDS,
    TIME_MARGIN,
    Comparison,
    Effect,
    Interval,
    Question,
    Sample,
)
from tuner.verdict.stats.permutation import (
    ALPHA,
    holm,
    least_p,
    paired_t_p,
    sign_flip_interval,
    sign_flip_p,
    wilcoxon_p,
)

# How large a difference a paired test finds, in standard deviations of the differences.


POWER = 0.9
"""How often a difference that is called detectable would be found."""

_EXACT_UP_TO = 12
"""Pairs up to which the permutation test itself is tried on drawn differences;
of more it is close to Student's."""
_DRAWS = 2000
_SEED = 20261122


@functools.lru_cache(maxsize=64)
def t_shift(n: int, level: float) -> float:
    """The mean of n normal differences that Student's paired
    t test finds at `level` with `POWER` (noncentral t).
    """
    from scipy import optimize, stats

    needed = float(stats.t.isf(level / 2, n - 1))

    def lacking(noncentrality: float) -> float:
        return float(stats.nct.sf(needed, n - 1, noncentrality)) - POWER

    greatest = 2 * (needed + float(stats.t.isf(1 - POWER, n - 1)))
    return float(optimize.brentq(lacking, 0.0, greatest, xtol=1e-6)) / math.sqrt(n)


@functools.lru_cache(maxsize=64)
def sign_flip_shift(n: int, level: float) -> float:
    """The same of the permutation test, whose p takes few
    values where pairs are few: by simulation, then.

    With ten pairs and a level of 0.0025 only ten differences of one sign are enough, which asks for
    a third more.
    """
    wanted = t_shift(n, level)
    if n > _EXACT_UP_TO:
        return wanted
    draws = np.random.default_rng(_SEED).standard_normal((_DRAWS, n))
    low, high = 0.0, 8 * wanted
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if _found(draws + middle, level) >= POWER else (middle, high)
    return high


def _found(differences: np.ndarray, level: float) -> float:
    """The share of samples (samples, n) in which a two-sided
    permutation test finds a difference at `level`.
    """
    n = differences.shape[1]
    bits = np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1  # the other half mirrors these
    sums = np.abs(differences @ (1.0 - 2.0 * bits).T)
    observed = np.abs(differences.sum(axis=1, keepdims=True))
    return float(np.mean((sums >= observed * (1 - 1e-12)).mean(axis=1) <= level))


@dataclass(frozen=True, slots=True)
class _Test:
    """One test before the correction: paired differences,
    on the log scale for seconds, of `a` and `b`.
    """

    effect: Effect
    differences: np.ndarray
    a: Sample
    b: Sample


def judge(
    samples: Iterable[Sample], questions: Sequence[Question], *, margin: float = MARGIN
) -> tuple[Comparison, ...]:
    """Answer `questions` about `samples` that were verified with as many seeds as planned: the
    exact permutation test.

    Args:
        samples: all configurations that the questions name.
        questions: which to hold against which; each family is corrected by itself.
        margin: how much of the other's MQL is too little to care about, relative.
    """
    named = {sample.name: sample for sample in samples}
    tests = {
        (q, objective): _test(q, objective, named)
        for q in questions
        for objective in (SECONDS, MQL)
    }
    for family in {q.family for q in questions}:
        _correct([key for key in tests if key[0].family == family], tests, margin)
    return tuple(
        Comparison(question=q, seconds=tests[q, SECONDS].effect, mql=tests[q, MQL].effect)
        for q in questions
    )


def _test(question: Question, objective: str, named: Mapping[str, Sample]) -> _Test:
    a, b = named[question.a], named[question.b]
    of_a, of_b = (a.seconds, b.seconds) if objective == SECONDS else (a.mql, b.mql)
    seeds = sorted(of_a.keys() & of_b.keys())
    x, y = np.array([of_a[s] for s in seeds]), np.array([of_b[s] for s in seeds])
    if len(seeds) < LEAST_RUNS:
        why = f"{len(seeds)} pairs of runs on the same seeds, {LEAST_RUNS} are the least"
        return _Test(
            Effect(objective=objective, estimate=None, pairs=len(seeds), why_not=why), x, a, b
        )
    differences = np.log(x) - np.log(y) if objective == SECONDS else x - y
    others = {
        "permutation": sign_flip_p(differences),
        "wilcoxon": wilcoxon_p(differences),
        "t": paired_t_p(differences),
    }
    effect = Effect(
        objective=objective,
        estimate=None,
        pairs=len(seeds),
        p=others["permutation"],
        others=others,
    )
    return _Test(effect, differences, a, b)


def _correct(
    keys: Sequence[tuple[Question, str]], tests: dict[tuple[Question, str], _Test], margin: float
) -> None:
    """Holm's steps over the tests of one family, and what follows for each effect.

    Where a test does not reject, the steps end: those of greater p keep its level, at which they do
    not reject either.
    """
    tested = [key for key in keys if tests[key].effect.p is not None]
    p_values = [tests[key].effect.p or 0.0 for key in tested]
    adjusted = dict(zip(tested, holm(p_values), strict=True))
    going_on, level = True, 0.0
    for rank, key in enumerate(sorted(tested, key=lambda key: tests[key].effect.p or 0.0)):
        if going_on:
            level = ALPHA * (1 / (len(tested) - rank))
        found = tests[key]
        estimate = _estimate(found, level)
        going_on = going_on and not estimate.covers(found.effect.nothing)
        effect = replace(found.effect, estimate=estimate, p_adjusted=adjusted[key], level=level)
        tests[key] = replace(
            found, effect=_concluded(replace(found, effect=effect), margin, rejected=going_on)
        )


def _estimate(found: _Test, level: float) -> Interval:
    """The mean difference with what the test does not exclude, seconds as ratios."""
    mean = float(found.differences.mean())
    low, high = sign_flip_interval(found.differences, level)
    if found.effect.objective == SECONDS:
        mean, low, high = (_ratio(value) for value in (mean, low, high))
    return Interval(mean, low, high, found.effect.pairs)


def _concluded(found: _Test, margin: float, *, rejected: bool) -> Effect:
    effect = found.effect
    estimate, level = effect.estimate, effect.level
    assert estimate is not None, "what was tested has an estimate"
    assert level is not None, "and was tested at a level"
    better, other = (found.a, found.b) if estimate.estimate < effect.nothing else (found.b, found.a)
    out_of_reach = not rejected and least_p(effect.pairs) > level
    why = ""
    if rejected and better.misses > other.misses:
        why = (
            f"{better.name} missed {better.misses} of {better.runs} runs, "
            f"{other.name} {other.misses} of {other.runs}: its figures leave out its own worst"
        )
    elif out_of_reach:
        why = (
            f"{effect.pairs} pairs of runs are too few for so many questions at once; "
            "verify with more seeds"
        )
    claimed = rejected and not why
    close = _within(estimate, effect.objective, found.b, margin)
    return replace(
        effect,
        claimed=claimed,
        within_margin=close,
        detectable=None
        if out_of_reach
        else _detectable(found.differences, effect.objective, level),
        why_not=why,
    )


def _detectable(differences: np.ndarray, objective: str, level: float) -> float:
    """What the test finds at that level with `POWER`, by the spread of these differences (n,)."""
    size = sign_flip_shift(len(differences), level) * float(np.std(differences, ddof=1))
    return _ratio(size) if objective == SECONDS else size


def _ratio(difference: float) -> float:
    """What a difference of logarithms is as a ratio; infinite beyond what a number holds."""
    with np.errstate(over="ignore"):
        return float(np.exp(difference))


def _within(found: Interval, objective: str, b: Sample, margin: float) -> bool:
    """Whether the whole interval is too close to "no difference" to care about: for MQLs, within
    the margin within which one counts as as good as the other.
    """
    if objective == SECONDS:
        return found.low > 1 / TIME_MARGIN and found.high < TIME_MARGIN
    size = margin * abs(float(np.mean(list(b.mql.values()))))
    return found.low > -size and found.high < size
