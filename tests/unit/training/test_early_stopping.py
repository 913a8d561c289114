from __future__ import annotations

import math

import pytest

from tuner.training.run_state import EarlyStopping


def _stops_after(losses: list[float], *, patience: int, min_delta: float = 0.0) -> int | None:
    rule = EarlyStopping(patience, min_delta)
    return next((epoch for epoch, loss in enumerate(losses, start=1) if rule.update(loss)), None)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1.0, 0.9, 0.95, 0.92, 0.91], 5),  # three epochs without improvement after the second
        # The wait begins anew with every improvement.
        ([1.0, 0.9, 0.95, 0.92, 0.8, 0.9, 0.9], None),
        ([1.0, 0.9, 0.95, 0.92, 0.8, 0.9, 0.9, 0.9], 8),
        ([1.0, 1.0, 1.0, 1.0], 4),  # an equal loss is no improvement
        ([3.0, 2.0, 1.0, 0.5, 0.2], None),
    ],
)
def test_training_ends_after_patience_epochs_without_improvement(
    losses: list[float], expected: int | None
) -> None:
    assert _stops_after(losses, patience=3) == expected


def test_an_improvement_must_exceed_min_delta() -> None:
    assert _stops_after([1.0, 0.95, 0.91], patience=2, min_delta=0.1) == 3
    assert _stops_after([1.0, 0.95, 0.89], patience=2, min_delta=0.1) is None


def test_small_steps_add_up_to_an_improvement_over_the_best() -> None:
    """The best moves only with an improvement: a slow descent is not taken for a standstill."""
    losses = [1.0, 0.96, 0.92, 0.88, 0.84, 0.8, 0.76, 0.72]
    assert _stops_after(losses, patience=3, min_delta=0.1) is None
    rule = EarlyStopping(patience=9, min_delta=0.1)
    for loss in losses[:3]:
        rule.update(loss)
    assert rule.best == 1.0


def test_a_loss_that_is_no_number_never_improves() -> None:
    assert _stops_after([1.0, math.nan, math.inf], patience=2) == 3
