from __future__ import annotations

import dataclasses

from tuner.config import Architecture, Hyperparameters, TrainingSettings
from tuner.data.prepare import PreparedData
from tuner.training.one_step import LEAST_STEPS, MOST_STEPS, pace_of

ORIGINAL = Architecture(model="original")
HYPERPARAMETERS = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=16, batch_size=64
)


def test_an_epoch_is_as_many_steps_as_its_batches(prepared: PreparedData) -> None:
    pace = pace_of(ORIGINAL, HYPERPARAMETERS, TrainingSettings(), prepared)
    assert pace.steps == 5  # 302 windows by 64
    assert LEAST_STEPS <= pace.measured <= MOST_STEPS
    assert 0 < pace.seconds < 60
    assert pace.device


def test_smaller_batches_are_more_steps(prepared: PreparedData) -> None:
    small = dataclasses.replace(HYPERPARAMETERS, batch_size=8)
    assert pace_of(ORIGINAL, small, TrainingSettings(), prepared).steps == 38
