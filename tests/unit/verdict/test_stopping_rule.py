"""What a recorded training would have come to under another stopping rule."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.storage.queue.epochs import EpochRow
from tuner.training.early_stopping import EarlyStopping
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.stopping_rule import StoppingRule, replay, replay_study

EXPORT = Path(__file__).parents[3] / "benchmarks" / "campaign" / "etth-original.json.gz"
LOSSES = st.lists(st.floats(0.1, 2.0), min_size=1, max_size=60)


def curve(losses: list[float | None], *, repeat: int = 0) -> list[EpochRow]:
    return [
        EpochRow(i + 1, 0.5, loss, 1e-4, elapsed_s=0.5 * (i + 1), repeat=repeat)
        for i, loss in enumerate(losses)
    ]


def rule(patience: int, min_delta: float = 0.0) -> StoppingRule:
    return StoppingRule(patience=patience, min_delta=min_delta)


def test_a_shorter_patience_stops_where_it_would_have() -> None:
    losses: list[float | None] = [1.0, 0.9, 0.95, 0.94, 0.8, 0.81, 0.82, 0.83]
    long, short = replay(curve(losses), rule(3)), replay(curve(losses), rule(2))
    assert (long.epochs, long.best_epoch, long.seconds, long.same_weights) == (8, 5, 4.0, True)
    assert (short.epochs, short.best_epoch, short.seconds) == (4, 2, 2.0)
    assert short.reached
    assert not short.same_weights


def test_what_would_have_gone_on_is_not_reached() -> None:
    found = replay(curve([1.0, 0.9, 0.95]), rule(5))
    assert not found.reached
    assert (found.epochs, found.best_epoch, found.same_weights) == (3, 2, True)


def test_small_steps_down_end_a_training_and_their_weights_are_kept() -> None:
    losses: list[float | None] = [1.0, 0.995, 0.99, 0.985, 0.98]
    found = replay(curve(losses), rule(3, min_delta=0.1))
    assert (found.epochs, found.best_epoch, found.reached) == (4, 4, True)
    assert not found.same_weights


def test_a_loss_that_is_no_number_is_no_improvement() -> None:
    assert replay(curve([1.0, None, None]), rule(2)).best_epoch == 1
    with pytest.raises(ValueError, match="no epoch"):
        replay([], rule(2))


@given(LOSSES, st.integers(1, 12), st.sampled_from([0.0, 0.01, 0.2]))
def test_it_is_what_training_with_that_rule_does(
    losses: list[float], patience: int, min_delta: float
) -> None:
    stopping = EarlyStopping(patience, min_delta)
    seen: list[float] = []
    over = False
    for loss in losses:
        seen.append(loss)
        if over := stopping.update(loss):
            break
    found = replay(curve(list(losses)), rule(patience, min_delta))
    assert (found.epochs, found.reached) == (len(seen), over)
    assert found.best_epoch == seen.index(min(seen)) + 1
    assert found.same_weights == (min(seen) == min(losses))


def test_a_training_is_over_at_a_validated_epoch_only() -> None:
    losses: list[float | None] = [None, 1.0, None, 1.1, None, 1.2, None, 1.3]
    found = replay(curve(losses), rule(3))
    assert (found.epochs, found.best_epoch, found.reached) == (6, 2, True)


def test_the_rule_of_a_recorded_study_gives_what_it_recorded() -> None:
    study = read_studies([str(EXPORT)], task="etth", storage="sqlite:///none.db")[0]
    training = study.definition.training
    own = replay_study(study, rule(training.patience, training.min_delta))
    assert len(own) == sum(record.converged for record in study.results.complete)
    for number, (found,) in own.items():
        recorded = study.record(number).recorded
        assert (found.epochs, found.best_epoch) == (recorded.epochs, recorded.best_epoch)
        assert found.seconds == pytest.approx(recorded.wall_clock_s, abs=0.002)
        assert found.reached
        assert found.same_weights
    shorter = replay_study(study, rule(5, training.min_delta))
    assert all(shorter[number][0].epochs <= own[number][0].epochs - 5 for number in own)


def test_each_seed_of_a_trial_is_replayed() -> None:
    study = read_studies([str(EXPORT)], task="etth", storage="sqlite:///none.db")[0]
    rows = (*curve([1.0, 0.9, 0.95, 0.96]), *curve([1.0, 1.1, 1.2], repeat=1))
    several = dataclasses.replace(study, curves=lambda _: {3: rows})
    (found,) = replay_study(several, rule(2)).values()
    assert [(each.epochs, each.best_epoch) for each in found] == [(4, 2), (3, 1)]
