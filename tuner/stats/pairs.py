"""Configurations held against each other on the same seeds: effects, tests, and what may be claimed.

Time is compared as a ratio, so it is tested on the log scale; MQL as a difference. A claim needs two things: the paired
test after Holm's correction over all questions of its family and both objectives, and that the better one did not miss
more often. Misses (runs that did not converge) are counted and never turned into numbers: a pair with a miss is left
out. The interval beside a claim is that of medians, which is wider than the test is sharp; it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.stats.intervals import LEAST_RUNS, Interval, difference_of_medians, ratio_of_medians
from tuner.stats.paired import ALPHA, holm, least_p, paired_t_p, sign_flip_p, wilcoxon_p
from tuner.stats.power import sign_flip_shift, t_shift
from tuner.stats.sequential import nominal_levels

TIME_MARGIN = 1.10
"""Ratios between 1 / 1.10 and 1.10 are too small to care about."""
MQL_MARGIN = 0.02

SECONDS, MQL = "wall_clock_s", "test_mql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The runs of one configuration by their seed: of `runs`, those that converged have figures.

    `seconds` leaves out contaminated timings too; `misses` counts the runs that did not converge.
    """

    name: str
    seconds: Mapping[int, float]
    mql: Mapping[int, float]
    runs: int
    misses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`a` against `b`. Questions of one `family` share the chance of a false claim."""

    a: str
    b: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What `a` does to one objective of `b`: a ratio of medians (seconds) or a difference (MQL), and its test.

    `p` is that of the test that decides, `p_adjusted` the same after Holm's correction, `others` shows further tests.
    `claimed`: a difference may be claimed. `within_margin`: the whole interval is too close to "none" to care about.
    `detectable` is the true difference that such runs find in nine cases of ten: a ratio above 1, or a difference; None
    where they are too few to find any.
    `why_not` says why there can be no answer; empty where there is one.
    """

    objective: str
    estimate: Interval | None
    pairs: int
    p: float | None = None
    p_adjusted: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    claimed: bool = False
    within_margin: bool = False
    decided: bool = False
    detectable: float | None = None
    why_not: str = ""

    @property
    def nothing(self) -> float:
        """The value of "no difference"."""
        return 1.0 if self.objective == SECONDS else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The answer to a question, one effect an objective."""

    question: Question
    seconds: Effect
    mql: Effect

    @property
    def effects(self) -> tuple[Effect, Effect]:
        return self.seconds, self.mql

    @property
    def decided(self) -> bool:
        """Both objectives have a clear answer: a difference, or that there is none worth caring about."""
        return all(effect.decided for effect in self.effects)


@dataclass(frozen=True, slots=True)
class _Test:
    """One test before the correction: paired differences, on the log scale for seconds."""

    effect: Effect
    differences: np.ndarray
    in_favour_of: Sample | None
    """Who the estimate says is better."""
    other: Sample | None


@dataclass(frozen=True, slots=True)
class _Design:
    """How differences are tested: the test, its level for a share of alpha, and the least p for a number of pairs."""

    test: Callable[[np.ndarray], float]
    level_of: Callable[[float], float]
    least: Callable[[int], float]
    shift: Callable[[int, float], float]
    """The mean difference, in standard deviations, that so many pairs find at a level with `POWER`."""


def judge(samples: Iterable[Sample], questions: Sequence[Question], *, alpha: float = ALPHA) -> tuple[Comparison, ...]:
    """Answer `questions` about `samples` that were verified with as many seeds as planned: the exact permutation test.

    Args:
        samples: all configurations that the questions name.
        questions: which to hold against which; each family is corrected by itself.
        alpha: chance of any false claim in a family.
    """
    return _judge(samples, questions, _Design(sign_flip_p, lambda share: alpha * share, least_p, sign_flip_shift))


def judge_at_look(
    samples: Iterable[Sample],
    questions: Sequence[Question],
    *,
    look: int,
    looks: tuple[int, ...],
    alpha: float = ALPHA,
) -> tuple[Comparison, ...]:
    """Answer `questions` at a look of a design that may stop early, after `look` seeds of `looks[-1]` planned ones.

    Student's paired t test decides (permutations of a few pairs cannot reach the small levels of an early look), at the
    look's level of the design; Holm's steps use the designs of their shares of alpha (Ye, Li, Liu and Yao, "A
    group-sequential Holm procedure with multiple primary endpoints", Statistics in Medicine 32, 2013).
    """
    index = looks.index(look)
    design = _Design(paired_t_p, lambda share: nominal_levels(alpha * share, looks)[index], lambda _: 0.0, t_shift)
    return _judge(samples, questions, design)


def _judge(samples: Iterable[Sample], questions: Sequence[Question], design: _Design) -> tuple[Comparison, ...]:
    named = {sample.name: sample for sample in samples}
    tests = {(q, objective): _test(q, objective, named, design) for q in questions for objective in (SECONDS, MQL)}
    for family in {q.family for q in questions}:
        _correct([key for key in tests if key[0].family == family], tests, design)
    return tuple(Comparison(question=q, seconds=tests[q, SECONDS].effect, mql=tests[q, MQL].effect) for q in questions)


def _test(question: Question, objective: str, named: Mapping[str, Sample], design: _Design) -> _Test:
    a, b = named[question.a], named[question.b]
    of_a, of_b = (a.seconds, b.seconds) if objective == SECONDS else (a.mql, b.mql)
    seeds = sorted(of_a.keys() & of_b.keys())
    x, y = np.array([of_a[s] for s in seeds]), np.array([of_b[s] for s in seeds])
    estimate = ratio_of_medians(x, y) if objective == SECONDS else difference_of_medians(x, y)
    if estimate is None:
        why = f"{len(seeds)} pairs of runs on the same seeds, {LEAST_RUNS} are the least"
        return _Test(Effect(objective=objective, estimate=None, pairs=len(seeds), why_not=why), x, None, None)
    differences = np.log(x) - np.log(y) if objective == SECONDS else x - y
    others = {
        "permutation": sign_flip_p(differences),
        "wilcoxon": wilcoxon_p(differences),
        "t": paired_t_p(differences),
    }
    effect = Effect(objective=objective, estimate=estimate, pairs=len(seeds), p=design.test(differences), others=others)
    a_better = estimate.estimate < effect.nothing
    return _Test(effect, differences, *((a, b) if a_better else (b, a)))


def _correct(keys: Sequence[tuple[Question, str]], tests: dict[tuple[Question, str], _Test], design: _Design) -> None:
    """Holm's steps over the tests of one family, and what follows for each effect."""
    tested = [key for key in keys if tests[key].effect.p is not None]
    p_values = [tests[key].effect.p or 0.0 for key in tested]
    adjusted = dict(zip(tested, holm(p_values), strict=True))
    going_on = True
    for rank, key in enumerate(sorted(tested, key=lambda key: tests[key].effect.p or 0.0)):
        found = tests[key]
        level = design.level_of(1 / (len(tested) - rank))
        going_on = going_on and (found.effect.p or 0.0) <= level
        out_of_reach = design.least(found.effect.pairs) > design.level_of(1 / len(tested))
        concluded = _concluded(found, adjusted[key], level, rejected=going_on, out_of_reach=out_of_reach)
        if not out_of_reach:
            size = _detectable(found.differences, concluded.objective, level, design)
            concluded = replace(concluded, detectable=size)
        tests[key] = replace(found, effect=concluded)


def _concluded(found: _Test, p_adjusted: float, level: float, *, rejected: bool, out_of_reach: bool) -> Effect:
    effect = found.effect
    estimate = effect.estimate
    assert estimate is not None, "what was tested has an estimate"
    assert found.in_favour_of is not None
    assert found.other is not None
    why = ""
    if rejected and found.in_favour_of.misses > found.other.misses:
        why = (
            f"{found.in_favour_of.name} missed {found.in_favour_of.misses} of {found.in_favour_of.runs} runs, "
            f"{found.other.name} {found.other.misses} of {found.other.runs}: its figures leave out its own worst"
        )
    elif out_of_reach:
        why = f"{effect.pairs} pairs of runs are too few for so many questions at once; verify with more seeds"
    claimed = rejected and not why
    return replace(
        effect,
        p_adjusted=p_adjusted,
        claimed=claimed,
        within_margin=_within(estimate.low, estimate.high, effect.objective),
        decided=claimed or _equivalent(found.differences, effect.objective, level),
        why_not=why,
    )


def _detectable(differences: np.ndarray, objective: str, level: float, design: _Design) -> float:
    """What the test finds at that level with `POWER`, by the spread of these differences (n,)."""
    size = design.shift(len(differences), level) * float(np.std(differences, ddof=1))
    return math.exp(size) if objective == SECONDS else size


def _within(low: float, high: float, objective: str) -> bool:
    if objective == SECONDS:
        return low > 1 / TIME_MARGIN and high < TIME_MARGIN
    return low > -MQL_MARGIN and high < MQL_MARGIN


def _equivalent(differences: np.ndarray, objective: str, level: float) -> bool:
    """The mean difference's t interval at that level lies within the margin (two one-sided tests, Schuirmann 1987)."""
    from scipy import stats

    n = len(differences)
    half = float(stats.t.isf(level / 2, n - 1)) * float(np.std(differences, ddof=1)) / math.sqrt(n)
    low, high = float(differences.mean()) - half, float(differences.mean()) + half
    return _within(math.exp(low), math.exp(high), objective) if objective == SECONDS else _within(low, high, objective)
