"""The interval that is printed belongs to the test that decides: they never disagree, however the
samples fall."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from tuner.spec.margin import MARGIN
from tuner.verdict.compare.answers import levels, mql_phrase, sentence, time_phrase
from tuner.verdict.stats.intervals import (
    TIME_MARGIN,
    Comparison,
    Effect,
    Question,
    Sample,
)
from tuner.verdict.stats.pairs import judge
from tuner.verdict.stats.permutation import (
    least_p,
    paired_t_interval,
    paired_t_p,
    sign_flip_interval,
    sign_flip_p,
)

SIZED = re.compile(r"(?:in |MQL )([-+.\d]+) \[([-+.\d]+), ([-+.\d]+)\]")


def differences(rng: np.random.Generator, n: int) -> np.ndarray:
    """Of all kinds: wide and narrow, skewed, with ties, with zeros, rounded, nearly constant."""
    shift, kind = rng.normal(0, 1.5) / math.sqrt(n), rng.integers(6)
    d = rng.normal(shift, 1.0, n)
    if kind == 1:
        d = np.round(d, 1)
    elif kind == 2:
        d = rng.choice((-1.0, 0.0, 1.0), n, p=(0.2, 0.2, 0.6))
    elif kind == 3:
        d = rng.exponential(1.0, n) - 0.6 + shift
    elif kind == 4:
        d = shift + 1e-9 * d
    elif kind == 5:
        d = rng.standard_t(2, n) + shift
    return np.asarray(d * 10.0 ** rng.integers(-6, 3))


@pytest.mark.parametrize(
    ("test", "interval"),
    [(sign_flip_p, sign_flip_interval), (paired_t_p, paired_t_interval)],
    ids=["flips", "t"],
)
def test_the_interval_leaves_out_no_difference_where_the_test_rejects_and_nowhere_else(
    test: Callable[[np.ndarray], float],
    interval: Callable[[np.ndarray, float], tuple[float, float]],
) -> None:
    rng = np.random.default_rng(13)
    rejected = 0
    for _ in range(400):
        d = differences(rng, int(rng.integers(5, 12)))
        level = 0.05 / int(rng.integers(1, 20))
        low, high = interval(d, level)
        p = test(d)
        assert low <= d.mean() <= high or math.isclose(low, high)
        if not math.isclose(p, level, rel_tol=1e-9):
            assert (p <= level) == (low > 0 or high < 0), (d, level, p, low, high)
        rejected += p <= level
    assert 40 < rejected < 360


def test_the_ends_are_where_the_test_of_a_shifted_sample_begins_to_reject() -> None:
    rng = np.random.default_rng(17)
    for level in (0.05, 0.0125, 0.0025):
        d = rng.normal(0.3, 1.0, 10)
        low, high = sign_flip_interval(d, level)
        assert sign_flip_p(d - (low + 1e-9)) > level
        assert sign_flip_p(d - (high - 1e-9)) > level
        assert sign_flip_p(d - (low - 1e-9)) <= level
        assert sign_flip_p(d - (high + 1e-9)) <= level
    assert sign_flip_interval(d, least_p(10)) == pytest.approx((d.min(), d.max()))
    assert sign_flip_interval(d, 0.9 * least_p(10)) == (-math.inf, math.inf)


def test_many_pairs_have_the_same_interval_every_time_and_it_is_about_students() -> None:
    d = np.random.default_rng(19).normal(0.3, 1.0, 40)
    found = sign_flip_interval(d, 0.05)
    assert found == sign_flip_interval(d, 0.05)
    assert found == pytest.approx(paired_t_interval(d, 0.05), abs=0.03)
    assert (sign_flip_p(d) <= 0.05) == (found[0] > 0)


def test_the_interval_holds_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(23)
    for shape in (
        rng.standard_normal,
        lambda size: rng.standard_t(3, size),
        lambda size: rng.uniform(-1, 1, size),
    ):
        found = [sign_flip_interval(row, 0.05) for row in 5.0 + np.asarray(shape((1500, 10)))]
        assert (
            0.935 <= np.mean([low <= 5.0 <= high for low, high in found]) <= 0.965
        )  # 974 of 1024 is 95.1 %


def samples(rng: np.random.Generator, names: str, seeds: int) -> list[Sample]:
    drawn = []
    for name in names:
        ratio, more = math.exp(rng.normal(0, 0.08)), rng.normal(0, 0.012)
        noise = 10.0 ** rng.uniform(-2.5, -0.5)
        missing = int(rng.integers(0, 3)) if rng.random() < 0.2 else 0
        kept = seeds - missing
        drawn.append(
            Sample(
                name=name,
                seconds=dict(enumerate(10 * ratio * np.exp(rng.normal(0, noise, kept)))),
                mql=dict(
                    enumerate(
                        np.round(
                            0.8 + more + rng.normal(0, noise / 10, kept), int(rng.integers(3, 9))
                        )
                    )
                ),
                runs=seeds,
                misses=missing,
            )
        )
    return drawn


def verdicts() -> Iterator[tuple[Comparison, Mapping[str, Sample]]]:
    rng = np.random.default_rng(29)
    for _ in range(100):
        drawn = samples(rng, "abc"[: int(rng.integers(2, 4))], int(rng.choice((6, 8, 9))))
        asked = [
            Question(a=a.name, b=b.name, family="f")
            for a in drawn
            for b in drawn
            if a.name < b.name
        ]
        answers = judge(drawn, asked)
        yield from ((answer, {each.name: each for each in drawn}) for answer in answers)


def holds_together(effect: Effect, named: Mapping[str, Sample], question: Question) -> None:
    """The claim, the estimate, the interval, and the words of one effect."""
    found = effect.estimate
    assert found is not None
    assert effect.level is not None
    assert effect.p is not None
    assert found.low <= found.estimate <= found.high
    out = not found.covers(effect.nothing)
    lower_is = found.estimate < effect.nothing
    better, other = (question.a, question.b) if lower_is else (question.b, question.a)
    misses_more = named[better].misses > named[other].misses
    assert effect.claimed == (out and not misses_more)
    if out:
        assert effect.p <= effect.level
        assert (found.high < effect.nothing) == lower_is
    size = MARGIN * float(np.mean(list(named[question.b].mql.values())))
    limits = (1 / TIME_MARGIN, TIME_MARGIN) if effect.nothing else (-size, size)
    assert effect.within_margin == (limits[0] < found.low and found.high < limits[1])
    said = time_phrase(effect, "b") if effect.nothing else mql_phrase(effect)
    assert ("surely close" in said) == (effect.within_margin and not effect.why_not)
    shown = SIZED.search(said)
    assert (shown is None) == bool(effect.why_not)
    if shown is None:
        assert "no verdict" in said
        return
    middle, low, high = (float(number) for number in shown.groups())
    assert (low > effect.nothing or high < effect.nothing) == effect.claimed, said
    assert ("not distinguishable" in said) == (not effect.claimed)
    assert not effect.claimed or (middle > effect.nothing) == (low > effect.nothing)


def test_a_claim_is_made_where_the_printed_interval_leaves_out_no_difference_and_nowhere_else() -> (
    None
):
    claimed = close = neither = silent = 0
    for answer, named in verdicts():
        for effect in answer.effects:
            if effect.estimate is None:
                continue
            holds_together(effect, named, answer.question)
            claimed += effect.claimed
            close += effect.within_margin
            neither += not (effect.claimed or effect.within_margin)
            silent += bool(effect.why_not)
    assert min(claimed, close, neither, silent) > 15


def test_the_simple_variant_of_the_campaign_has_no_claim_with_an_interval_that_holds_zero() -> None:
    """What was printed as a claim: MQL -0.004 [-0.011, +0.004], the interval of other figures than
    the test's."""
    d = np.array([-0.009, -0.002, -0.006, -0.003, -0.001, -0.007, -0.004, -0.008, 0.0005, -0.005])
    rng = np.random.default_rng(31)
    base = 0.83 + rng.normal(0, 0.02, 10)
    b = Sample(
        name="b", seconds=dict(enumerate(10 + d)), mql=dict(enumerate(base)), runs=10, misses=0
    )
    a = Sample(
        name="a", seconds=dict(enumerate(10 - d)), mql=dict(enumerate(base + d)), runs=10, misses=0
    )
    (answer,) = judge([a, b], [Question(a="a", b="b", family="f")])
    assert mql_phrase(answer.mql) == "MQL -0.004 [-0.007, -0.002], yet surely close"
    assert (
        time_phrase(answer.seconds, "b")
        == "converges in 1.0009 [1.0003, 1.0015] of the time of b, yet surely close"
    )
    assert sentence(answer, "a", "b").endswith("; MQL -0.004 [-0.007, -0.002], yet surely close")
    assert "(95 % to 97.5 % confidence)" in levels([answer])
