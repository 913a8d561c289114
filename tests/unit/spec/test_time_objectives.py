"""A time objective is told in one place: what is recorded, shown and pruned by follows from it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.config import TrainingSettings
from tuner.data.task import load_task
from tuner.files import kinds
from tuner.record import MEANINGS
from tuner.search.bounds import epochs_waited
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import (
    TIMES,
    Ended,
    Running,
    TimeObjective,
    axis_title,
    heading,
    measured_times,
)
from tuner.spec.study_file import load_study_file
from tuner.study.create import describe

PATIENCE, MIN_DELTA, TARGET = 5, 1e-5, 0.55


def course(seed: int) -> tuple[list[float], list[float]]:
    """Losses that fall and waver until early stopping ends them, and a clock that is uneven."""
    random = np.random.default_rng(seed)
    floor, rate = random.uniform(0.3, 0.6), random.uniform(0.05, 0.5)
    losses: list[float] = []
    while len(losses) < 80 and epochs_waited(losses, MIN_DELTA) < PATIENCE:
        fallen = floor + math.exp(-rate * len(losses))
        losses.append(fallen * float(random.lognormal(0, 0.05)))
    return losses, [float(at) for at in np.cumsum(random.uniform(0.5, 1.5, len(losses)))]


def ended(losses: list[float], elapsed_s: list[float]) -> Ended:
    history: list[Any] = [
        SimpleNamespace(val_loss=loss, elapsed_s=at)
        for loss, at in zip(losses, elapsed_s, strict=True)
    ]
    return Ended(
        history=history,
        wall_clock_s=elapsed_s[-1],
        total_s=elapsed_s[-1] + 2.25,
        time_to_best_s=elapsed_s[losses.index(min(losses))],
        target_val_loss=TARGET,
    )


@pytest.mark.parametrize("time", TimeObjective)
def test_the_least_that_a_time_can_come_to_is_never_more_than_what_it_comes_to(
    time: TimeObjective,
) -> None:
    compared = 0
    for seed in range(60):
        losses, elapsed_s = course(seed)
        comes_to = TIMES[time].measured(ended(losses, elapsed_s))
        assert comes_to is not None
        best = losses.index(min(losses)) + 1
        for epoch in range(1, len(losses) + 1):
            steps = np.diff([0.0, *elapsed_s])
            least = TIMES[time].least(
                Running(
                    losses=losses[:epoch],
                    elapsed_s=elapsed_s[:epoch],
                    s_per_epoch=float(steps.min()),
                    improving_in=max(0, best - epoch),
                    epochs_left=len(losses) - epoch,
                    target_val_loss=TARGET,
                )
            )
            if least is None:
                assert comes_to == math.inf
            else:
                assert least <= comes_to + 1e-9
                compared += 1
    assert compared > 500


def test_a_target_may_be_reached_long_before_the_last_improvement() -> None:
    running = Running(
        losses=[0.8, 0.7],
        elapsed_s=[1.0, 2.0],
        s_per_epoch=1.0,
        improving_in=10,
        epochs_left=20,
        target_val_loss=0.6,
    )
    assert TIMES[TimeObjective.TO_TARGET].least(running) == 3.0


def test_all_times_are_measured_whichever_is_minimised() -> None:
    losses, elapsed_s = [0.9, 0.5, 0.6], [1.0, 2.0, 3.5]
    assert measured_times(ended(losses, elapsed_s)) == {
        "wall_clock_s": 3.5,
        "total_s": 5.75,
        "time_to_best_s": 2.0,
        "time_to_target_s": 2.0,
    }
    assert measured_times(ended([0.9], [1.0]))["time_to_target_s"] == math.inf


@pytest.mark.parametrize("time", TimeObjective)
def test_each_has_a_field_in_the_record_and_words_of_its_own(time: TimeObjective) -> None:
    assert MEANINGS[time].kind is kinds.SECONDS
    others = set(TimeObjective) - {time}
    assert axis_title(time) not in {axis_title(other) for other in others} | {time.value}
    assert heading(time) not in {heading(other) for other in others} | {time.value}
    definition = StudyDefinition.of(
        load_study_file("rmsnorm"),
        task=load_task("demo").definition(),
        data_hash="0" * 64,
        training=TrainingSettings(patience=7, min_delta=0.125),
        time_objective=time,
        target_val_loss=0.375 if time is TimeObjective.TO_TARGET else None,
    )
    (line,) = [each for each in describe(definition).splitlines() if f"**{time.value}**" in each]
    said = {
        TimeObjective.WALL_CLOCK: "by 0.125 for 7 epochs",
        TimeObjective.TO_TARGET: "under 0.375",
    }
    assert said.get(time, "seconds of") in line
    assert "{" not in line
