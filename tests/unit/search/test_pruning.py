"""A trial is ended only when nothing it may still become would stand on the front."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tuner.record import Recorded
from tuner.search.bounds import Caution, FinishedTrial, Link, Stopping, epochs_waited
from tuner.search.pruning import Pruner, Verdict

STOPPING = Stopping(patience=5, min_delta=1e-5, max_epochs=100)
CAUTION = Caution(min_finished=6, min_curves=4)
PACES = (1.0, 0.8, 1.3, 0.9, 1.1, 1.2, 0.7, 1.0)


def falling(
    pace: float, *, floor: float = 0.2, excess: float = 0.5, epochs: int = 200
) -> list[float]:
    """An exponential down to a floor, stopped as early stopping would."""
    losses: list[float] = []
    while len(losses) < min(epochs, STOPPING.max_epochs):
        losses.append(round(floor + excess * math.exp(-pace * 0.3 * (len(losses) + 1)), 4))
        if epochs_waited(losses, STOPPING.min_delta) == STOPPING.patience:
            break
    return losses


def trial(
    number: int, losses: Sequence[float], *, s_per_epoch: float = 1.0, dominates: bool = True
) -> FinishedTrial:
    """Its MQL is four times its best validation loss."""
    values = (len(losses) * s_per_epoch, 4 * min(losses))
    return FinishedTrial(number=number, values=values, curves=(tuple(losses),), dominates=dominates)


FINISHED = [
    trial(number, falling(pace, floor=0.2 + 0.002 * number)) for number, pace in enumerate(PACES)
]


def pruner(finished: Sequence[FinishedTrial] = FINISHED, **changes: object) -> Pruner:
    return Pruner(finished, STOPPING, caution=CAUTION, **changes)  # type: ignore[arg-type]


def judged(judge: Pruner, losses: Sequence[float], *, s_per_epoch: float = 1.0) -> Verdict | None:
    """The first verdict on a trial, epoch after epoch; the last epoch ends the training by
    itself."""
    for epoch in range(1, len(losses)):
        elapsed = [s_per_epoch * (i + 1) for i in range(epoch)]
        if verdict := judge.verdict(losses[:epoch], elapsed):
            return verdict
    return None


def test_a_trial_that_is_worse_and_slower_ends_early_and_says_why() -> None:
    losses = falling(1.0, floor=0.4)
    verdict = judged(pruner(), losses, s_per_epoch=3.0)
    assert verdict is not None
    assert verdict.epoch < len(losses) / 2
    by = FINISHED[verdict.dominated_by]
    assert verdict.dominating == by.values
    assert all(
        its <= at_best for its, at_best in zip(by.values, verdict.optimistic_end, strict=True)
    )
    said = verdict.said_in(Recorded())
    assert said.pruned_at_epoch == verdict.epoch
    assert said.pruned_dominated_by == by.number
    assert (
        said.pruned_optimistic_s,
        said.pruned_optimistic_mql,
    ) == verdict.optimistic_end
    assert said.failure is not None
    assert f"trial {by.number}" in said.failure
    assert said.failure.startswith(f"at best {verdict.optimistic_end[0]:.3f} s and MQL ")


@pytest.mark.parametrize("pace", PACES)
def test_a_trial_like_the_finished_ones_that_is_faster_is_never_ended(pace: float) -> None:
    assert judged(pruner(), falling(pace), s_per_epoch=0.5) is None


def test_a_trial_that_is_better_but_slower_is_never_ended() -> None:
    assert judged(pruner(), falling(1.0, floor=0.15, excess=0.55), s_per_epoch=2.0) is None


def test_a_worse_trial_is_not_ended_while_it_may_still_be_the_fastest() -> None:
    losses = falling(1.0, floor=0.4)
    fastest = min(each.values[0] for each in FINISHED)
    s_per_epoch = 0.9 * fastest / len(losses)
    assert judged(pruner(), losses, s_per_epoch=s_per_epoch) is None


def test_the_time_that_early_stopping_will_still_wait_counts() -> None:
    """After one epoch of 3 s, a patience of 5 makes 18 s certain."""
    ends = pruner().ends([0.9], [3.0])
    assert ends[0][0] == pytest.approx(3.0 + 5 * 3.0)
    assert ends[1][0] == pytest.approx(3.0 + 6 * 3.0)
    waiting = pruner().ends([0.5, 0.6, 0.6], [1.0, 2.0, 3.0])
    assert waiting[0] == pytest.approx((3.0 + 3 * 1.0, 4 * 0.5))


def test_the_first_epochs_of_a_trial_end_nothing_and_slow_ones_are_not_counted_on() -> None:
    """The first epoch takes what it takes to warm up: those to come may be as short as the
    shortest."""
    losses = falling(1.0, floor=0.4)
    assert judged(pruner(), losses, s_per_epoch=30.0).epoch == CAUTION.min_epochs  # type: ignore[union-attr]
    assert pruner().ends([0.5, 0.4, 0.3], [9.0, 10.0, 12.0])[0][0] == pytest.approx(12.0 + 5 * 1.0)


def test_ends_come_later_and_get_better_and_none_is_beyond_the_epoch_limit() -> None:
    ends = pruner().ends([0.9, 0.7, 0.6], [1.0, 2.0, 3.0])
    assert ends == sorted(ends, key=lambda end: (end[0], -end[1]))
    assert [end[1] for end in ends] == sorted((end[1] for end in ends), reverse=True)
    assert ends[-1][0] <= STOPPING.max_epochs * 1.0
    assert pruner().ends([0.9] * 100, [float(i + 1) for i in range(100)])[-1][0] == 100.0


def test_a_curve_that_flattens_is_promised_less_than_one_that_falls() -> None:
    flat = [0.9, 0.6, 0.5, 0.5, 0.5, 0.5]
    steep = [1.2, 1.1, 1.0, 0.8, 0.6, 0.5]
    elapsed = [float(i + 1) for i in range(6)]
    assert pruner().ends(steep, elapsed)[-1][1] < 0.8 * pruner().ends(flat, elapsed)[-1][1]


def test_nothing_is_ended_before_enough_trials_have_finished() -> None:
    losses = falling(1.0, floor=0.4)
    assert not pruner(FINISHED[:5]).ready
    assert judged(pruner(FINISHED[:5]), losses, s_per_epoch=3.0) is None
    assert judged(pruner(FINISHED[:6]), losses, s_per_epoch=3.0) is not None


@pytest.mark.parametrize("seeds", [1, 3])
def test_without_anything_finished_there_is_no_verdict(seeds: int) -> None:
    assert pruner([], seeds=seeds).verdict([0.5], [1.0]) is None


def test_trials_that_did_not_converge_or_keep_no_limit_dominate_nobody() -> None:
    censored = [replace(each, dominates=False) for each in FINISHED]
    assert judged(pruner(censored), falling(1.0, floor=0.4), s_per_epoch=3.0) is None
    one = [*censored[:-1], FINISHED[-1]]
    verdict = judged(pruner(one), falling(1.0, floor=0.4), s_per_epoch=3.0)
    assert verdict is not None
    assert verdict.dominated_by == FINISHED[-1].number


def test_trials_without_curves_or_with_a_loss_of_zero_teach_nothing() -> None:
    odd = [
        replace(FINISHED[0], curves=()),
        replace(FINISHED[1], curves=((0.5, 0.0),)),
        trial(9, [0.5]),
    ]
    assert not pruner([*FINISHED[:5], *odd[:2]]).ready
    assert pruner([*FINISHED[:5], odd[2]]).ready
    assert not pruner([trial(number, [0.5]) for number in range(9)]).ready, (
        "curves of one epoch show no gain"
    )
    assert pruner().verdict([0.5, 0.0], [1.0, 2.0]) is None


def test_one_unlucky_seed_of_three_does_not_end_a_trial_and_two_do() -> None:
    bad, elapsed = falling(1.0, floor=0.4)[:8], [3.0 * (i + 1) for i in range(8)]
    judge = pruner(seeds=3)
    assert pruner().verdict(bad, elapsed) is not None
    assert judge.verdict(bad, elapsed) is None
    good, poor = (1.0, 0.5), (60.0, 1.6)
    assert judge.verdict(bad, elapsed, earlier=[good]) is None
    assert judge.verdict(bad, elapsed, earlier=[poor]) is not None
    assert judge.verdict(bad, elapsed, earlier=[good, poor]) is not None


def test_the_time_to_the_best_epoch_does_not_count_the_waiting() -> None:
    losses, elapsed = [0.5, 0.6, 0.6], [1.0, 2.0, 3.0]
    ends = pruner(time_objective="time_to_best_s").ends(losses, elapsed)
    assert ends[0][0] == 1.0
    assert ends[1][0] == pytest.approx(4.0)


def test_the_time_to_a_target_is_known_once_it_is_reached() -> None:
    judge = pruner(time_objective="time_to_target_s", target_val_loss=0.55)
    assert {end[0] for end in judge.ends([0.6, 0.5, 0.4], [1.0, 2.0, 3.0])} == {2.0}
    missing = judge.ends([0.8, 0.7, 0.6], [1.0, 2.0, 3.0])
    assert missing[0][0] == pytest.approx(4.0)
    assert judge.ended([0.8, 0.7, 0.6], [1.0, 2.0, 3.0]) is None
    assert judge.verdict([0.8] * 100, [float(i + 1) for i in range(100)]) is None


def test_the_link_is_a_line_in_logarithms_that_never_falls_and_is_moved_to_a_low_residual() -> None:
    losses = [0.2, 0.25, 0.3, 0.4, 0.5]
    exact = Link.fitted(losses, [3 * loss**0.5 for loss in losses], quantile=0.1)
    assert exact(math.log(0.35)) == pytest.approx(3 * 0.35**0.5)
    lucky = Link.fitted(
        losses, [3 * loss**0.5 * (0.9 if loss == 0.3 else 1.0) for loss in losses], quantile=0.0
    )
    assert lucky(math.log(0.35)) == pytest.approx(0.9 * 3 * 0.35**0.5, rel=0.02)
    assert Link.fitted(losses, [1 / loss for loss in losses], quantile=0.5).slope == 0.0
    assert Link.fitted(losses, [0.8] * 5, quantile=0.5)(math.log(0.1)) == pytest.approx(
        0.8 * 0.1 / 0.2
    )
    assert Link.fitted([0.3, 0.3], [0.9, 0.8], quantile=0.0)(math.log(0.3)) == pytest.approx(0.8)


def test_the_pairs_that_the_link_is_fitted_to_do_not_grow_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs: list[int] = []
    all_pairs = np.triu_indices

    def counted(n: int, k: int) -> Any:
        pairs.append(n)
        return all_pairs(n, k=k)

    monkeypatch.setattr(np, "triu_indices", counted)
    monkeypatch.setattr("tuner.search.bounds.LINKED", 10)
    random = np.random.default_rng(0)
    losses = 0.2 + 0.3 * random.random(200)
    # None of the ten that the slope is fitted to.
    luck = np.where(losses == sorted(losses)[101], 0.9, 1.0)
    link = Link.fitted(list(losses), list(luck * 3 * losses**0.5), quantile=0.0)
    assert pairs == [10]
    assert link.slope == pytest.approx(0.5)
    assert link(math.log(0.35)) == pytest.approx(0.9 * 3 * 0.35**0.5)
    assert link.lowest == math.log(min(losses))


def test_epochs_are_waited_as_early_stopping_counts_them() -> None:
    assert epochs_waited([0.5], 1e-5) == 0
    assert epochs_waited([0.5, 0.5, 0.5 - 5e-6], 1e-5) == 2
    assert epochs_waited([0.5, 0.6, 0.4, 0.5], 1e-5) == 1


def instructions(action: Callable[[], object]) -> int:
    """Of Python's, in modules of ours: a count that no busy machine changes."""
    count = 0

    def step(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("tuner."):
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def test_a_verdict_takes_less_than_a_millisecond_after_200_epochs_and_300_trials() -> None:
    """A mean over a whole trial, in instructions: 16,000 of them take an eighth of a
    millisecond."""
    random = np.random.default_rng(0)
    curves = [
        [0.2 + 0.5 * math.exp(-0.02 * e) + 0.001 * random.random() for e in range(200)]
        for _ in range(300)
    ]
    many = [
        trial(number, curve, s_per_epoch=1 + random.random()) for number, curve in enumerate(curves)
    ]
    judge = Pruner(many, replace(STOPPING, max_epochs=201))
    losses, elapsed = [0.15 + loss for loss in curves[0]], [0.001 * (e + 1) for e in range(200)]
    counts = [
        instructions(functools.partial(judge.verdict, losses[:epoch], elapsed[:epoch]))
        for epoch in range(1, 201)
    ]
    assert sum(counts) / 200 < 50_000
