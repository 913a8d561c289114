"""A loss for each epoch of a curve that was validated every few epochs."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tuner.search.bounds import epochs_waited
from tuner.search.pruning import carried_on
from tuner.training.run_state import EarlyStopping


def test_a_loss_stands_until_the_next_one() -> None:
    assert carried_on([None, 2.0, None, 1.0, None]) == (4.0, 2.0, 2.0, 1.0, 1.0)
    assert carried_on([None, None]) == ()
    assert carried_on([]) == ()
    assert carried_on([3.0, 1.0]) == (3.0, 1.0)


@given(st.lists(st.floats(0.1, 2.0), min_size=1, max_size=20), st.integers(1, 5))
def test_early_stopping_has_waited_as_long_with_these(losses: list[float], every: int) -> None:
    """At each validated epoch, as pruning counts it."""
    rule = EarlyStopping(patience=10**9, min_delta=0.05)
    curve: list[float | None] = []
    for loss in losses:
        curve += [None] * (every - 1) + [loss]
        rule.update(loss, every)
        assert epochs_waited(carried_on(curve), 0.05) == rule.waited
    assert math.isfinite(rule.best)
