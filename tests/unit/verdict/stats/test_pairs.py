from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tuner.verdict.stats.intervals import LEAST_RUNS, Comparison, Question, Sample
from tuner.verdict.stats.pairs import judge

SEEDS = range(100, 110)
SD_TIME, SD_MQL = 0.05, 0.0073
"""Of the reference job's seeds: epochs to convergence (relative) and ETTh1 MQL."""


def sample(name: str, seconds: Sequence[float], mql: Sequence[float], *, misses: int = 0) -> Sample:
    return Sample(
        name=name,
        seconds=dict(zip(SEEDS, seconds, strict=False)),
        mql=dict(zip(SEEDS, mql, strict=False)),
        runs=len(seconds) + misses,
        misses=misses,
    )


def drawn(
    name: str, rng: np.random.Generator, *, ratio: float = 1.0, more: float = 0.0, seeds: int = 10
) -> Sample:
    return sample(
        name,
        list(ratio * 10 * np.exp(rng.normal(0, SD_TIME, seeds))),
        list(0.8 + more + rng.normal(0, SD_MQL, seeds)),
    )


def ask(a: Sample, b: Sample) -> Comparison:
    (answer,) = judge([a, b], [Question(a=a.name, b=b.name, family="f")])
    return answer


def test_a_large_difference_is_claimed_with_its_size() -> None:
    rng = np.random.default_rng(1)
    answer = ask(drawn("new", rng, ratio=0.6), drawn("old", rng))
    assert answer.seconds.claimed
    assert answer.seconds.estimate is not None
    assert answer.seconds.estimate.estimate == pytest.approx(0.6, abs=0.03)
    assert answer.seconds.p == 2 / 1024
    assert set(answer.seconds.others) == {"permutation", "wilcoxon", "t"}
    assert not answer.mql.claimed
    assert answer.mql.why_not == ""


def test_too_few_pairs_have_no_answer_and_say_how_many_are_needed() -> None:
    rng = np.random.default_rng(1)
    answer = ask(drawn("new", rng, ratio=0.1, seeds=4), drawn("old", rng))
    assert (answer.seconds.estimate, answer.seconds.p, answer.seconds.claimed) == (
        None,
        None,
        False,
    )
    assert (
        f"4 pairs of runs on the same seeds, {LEAST_RUNS} are the least" in answer.seconds.why_not
    )
    assert not any(each.claimed or each.within_margin for each in answer.effects)


def test_only_runs_on_the_same_seeds_are_paired() -> None:
    rng = np.random.default_rng(1)
    a, b = drawn("new", rng), drawn("old", rng)
    shifted = Sample(
        name="new",
        seconds={s + 4: v for s, v in a.seconds.items()},
        mql=dict(a.mql),
        runs=10,
        misses=0,
    )
    answer = ask(shifted, b)
    assert (answer.seconds.pairs, answer.mql.pairs) == (6, 10)


def test_who_misses_more_often_is_never_claimed_to_be_better() -> None:
    rng = np.random.default_rng(1)
    fast, slow = drawn("new", rng, ratio=0.5, seeds=8), drawn("old", rng)
    fast = Sample(name="new", seconds=fast.seconds, mql=fast.mql, runs=10, misses=2)
    answer = ask(fast, slow)
    assert answer.seconds.p == 2 / 256
    assert not answer.seconds.claimed
    assert "new missed 2 of 10 runs, old 0 of 10" in answer.seconds.why_not
    assert ask(
        drawn("new", rng, ratio=0.5),
        Sample(name="old", seconds=slow.seconds, mql=slow.mql, runs=12, misses=2),
    ).seconds.claimed


def test_questions_beyond_the_reach_of_so_few_pairs_say_so() -> None:
    rng = np.random.default_rng(1)
    # 15 pairs, 30 tests: 30 * 2 / 1024 > 0.05.
    samples = [drawn(str(i), rng, ratio=0.1**i) for i in range(6)]
    asked = [Question(a=str(b), b=str(a), family="f") for a in range(6) for b in range(a + 1, 6)]
    answers = judge(samples, asked)
    assert not any(answer.seconds.claimed for answer in answers)
    assert all("verify with more seeds" in answer.seconds.why_not for answer in answers)


def test_families_are_corrected_apart() -> None:
    rng = np.random.default_rng(7)
    a, b, c = drawn("a", rng, ratio=0.93), drawn("b", rng), drawn("c", rng)
    alone = ask(a, b).seconds
    apart = judge(
        [a, b, c], [Question(a="a", b="b", family="f"), Question(a="c", b="b", family="g")]
    )[0].seconds
    together = judge(
        [a, b, c], [Question(a="a", b="b", family="f"), Question(a="c", b="b", family="f")]
    )[0].seconds
    assert alone.p_adjusted == apart.p_adjusted
    assert alone.p is not None
    assert together.p_adjusted == pytest.approx(min(1.0, 4 * alone.p))


@pytest.mark.parametrize(("ratio", "more"), [(1.1, 0.02), (1.0, 0.0)])
def test_planted_differences_are_found_and_none_is_invented(ratio: float, more: float) -> None:
    rng = np.random.default_rng(20)
    repetitions = 60
    answers = [
        ask(drawn("a", rng, ratio=ratio, more=more), drawn("b", rng)) for _ in range(repetitions)
    ]
    time_found = sum(answer.seconds.claimed for answer in answers)
    mql_found = sum(answer.mql.claimed for answer in answers)
    if ratio > 1:
        assert min(time_found, mql_found) >= 0.9 * repetitions
    else:
        assert sum(a.seconds.claimed or a.mql.claimed for a in answers) <= 0.08 * repetitions


def test_what_is_called_detectable_is_found_in_nine_cases_of_ten() -> None:
    rng = np.random.default_rng(21)
    alike = [ask(drawn("a", rng), drawn("b", rng)) for _ in range(30)]
    ratio = float(
        np.median([answer.seconds.detectable for answer in alike if answer.seconds.detectable])
    )
    more = float(np.median([answer.mql.detectable for answer in alike if answer.mql.detectable]))
    planted = [ask(drawn("a", rng, ratio=ratio, more=more), drawn("b", rng)) for _ in range(100)]
    assert ratio > 1
    assert more > 0
    assert 80 <= sum(answer.seconds.claimed for answer in planted) <= 98
    assert 80 <= sum(answer.mql.claimed for answer in planted) <= 98
