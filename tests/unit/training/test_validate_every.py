"""Validation every n epochs: what is trained stays the same, and what was not seen is None."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkpointed_trainings import assert_same, files, interrupted
from tests.support.fitted_results import validation_loss
from tests.support.present import present
from tuner.config import Precision, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.training import FitResult, fit
from tuner.training.clock import Clock
from tuner.training.run_state import RunState

Configure = Callable[..., RunConfig]


def losses(result: FitResult) -> list[float | None]:
    return [record.val_loss for record in result.history]


def test_epochs_between_two_validations_have_no_loss_and_the_last_one_always_has(
    data: DeviceData, run_config: Configure
) -> None:
    every = fit(run_config(max_epochs=5), data)
    seldom = fit(run_config(max_epochs=5, validate_every=3), data)
    assert losses(seldom) == [None, None, losses(every)[2], None, losses(every)[4]]
    assert [r.train_loss for r in seldom.history] == [r.train_loss for r in every.history]
    assert seldom.best_epoch == 5
    assert validation_loss(seldom, data) == pytest.approx(seldom.best_val_loss, rel=1e-5)


def test_patience_stays_in_epochs(data: DeviceData, run_config: Configure) -> None:
    """No epoch improves enough but the first that is seen, the third: five epochs later is the
    eighth, which is not validated.
    """
    config = run_config(max_epochs=30, patience=5, min_delta=100, validate_every=3)
    result = fit(config, data)
    assert result.stopped_by is StopReason.CONVERGED
    assert result.epochs == 9
    assert result.best_val_loss == min(loss for loss in losses(result) if loss is not None)


def test_the_epoch_that_the_time_limit_cuts_short_is_validated(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(time_limit_s=1e-9, validate_every=10), data)
    assert result.stopped_by is StopReason.TIME_LIMIT
    assert result.epochs == result.best_epoch == 1
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)


@pytest.mark.parametrize("over_at", [3, 4])
def test_an_epoch_after_which_the_time_is_over_is_validated(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch, over_at: int
) -> None:
    """The clock stands still until it was read so often: at the look after an epoch that is not
    validated, or at the one that its record makes.
    """
    looks = 0

    def elapsed(self: Clock) -> float:
        nonlocal looks
        looks += 1
        return 100.0 if looks >= over_at else 0.0

    config = run_config(time_limit_s=50.0, validate_every=10, max_epochs=20, batch_size=512)
    monkeypatch.setattr(Clock, "elapsed", elapsed)
    result = fit(config, data)
    assert result.stopped_by is StopReason.TIME_LIMIT
    assert losses(result)[:-1] == [None] * (result.epochs - 1)
    assert result.best_val_loss == present(losses(result)[-1])
    assert result.best_epoch == result.epochs < 10


@pytest.mark.parametrize("over_at", [1, 3])
def test_an_epoch_after_which_a_deadline_leaves_no_time_is_validated(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch, over_at: int
) -> None:
    """Another epoch would end after it, as is seen once so many are over."""
    looks = 0

    def ends_by_deadline(self: RunState, epoch_s: float) -> bool:
        nonlocal looks
        looks += 1
        assert self.deadline is not None
        assert epoch_s > 0
        return looks >= over_at

    monkeypatch.setattr(RunState, "ends_by_deadline", ends_by_deadline)
    config = run_config(validate_every=10, max_epochs=20, batch_size=512)
    result = fit(config, data, deadline=time.perf_counter() + 1e6)
    assert (result.stopped_by, result.epochs) == (StopReason.TIME_LIMIT, over_at)
    assert result.message == f"its device hours are spent after epoch {over_at}"
    assert losses(result)[:-1] == [None] * (over_at - 1)
    assert result.best_val_loss == present(losses(result)[-1])
    assert result.best_epoch == over_at


@pytest.mark.parametrize("left_s", [0.0, 0.2])
def test_a_training_with_a_deadline_ends_with_a_validated_epoch(
    data: DeviceData, run_config: Configure, left_s: float
) -> None:
    """One that is cut short, and one of some epochs that are whole."""
    config = run_config(validate_every=100_000, max_epochs=1_000_000, batch_size=512)
    result = fit(config, data, deadline=time.perf_counter() + left_s)
    assert result.stopped_by is StopReason.TIME_LIMIT
    assert losses(result)[:-1] == [None] * (result.epochs - 1)
    assert result.best_epoch == result.epochs
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)


@pytest.mark.parametrize("epoch", [2, 4])
def test_an_interrupted_training_goes_on_with_the_same_bits(
    data: DeviceData, run_config: Configure, tmp_path: Path, epoch: int
) -> None:
    """In fp16, several batches an update, before any epoch was validated and after one was."""
    config = run_config(
        max_epochs=7,
        validate_every=3,
        accumulate=2,
        precision=Precision.FP16,
        patience=3,
        min_delta=0.5,
    )
    whole = fit(config, data)
    interrupted(config, data, files(tmp_path), epoch=epoch)
    resumed = fit(config, data, checkpoints=files(tmp_path))
    assert resumed.resumed_from == epoch
    assert_same(resumed, whole)


def test_a_training_that_diverges_between_two_validations_says_so(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(learning_rate=1e30, max_epochs=4, validate_every=4)
    result = fit(config, data)
    assert result.stopped_by is StopReason.DIVERGED
    assert "validation" not in result.message
    assert result.best_epoch == 0
