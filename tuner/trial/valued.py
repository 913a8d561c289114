"""A trial that came to its end, as a result: with its two values, or why it has none."""

from __future__ import annotations

import dataclasses
import math

from optuna.trial import TrialState

from tuner.config import StopReason
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import values_of
from tuner.spec.time_objectives import TimeObjective
from tuner.storage.records import TrialResult


def valued(recorded: Recorded, definition: StudyDefinition) -> TrialResult:
    """The result of a training that ended by itself or at a limit, with its scores and times
    recorded.
    """
    values = values_of(recorded, definition.objectives)
    if values is not None:
        return TrialResult(TrialState.COMPLETE, values, recorded.storable())
    if _missed_target(recorded, definition):
        target, best = definition.target_val_loss, recorded.val_loss
        why = f"the validation loss never came down to {target:g} (its lowest was {best:.6g})"
        missed = dataclasses.replace(recorded, target_missed=True, failure=why)
        return TrialResult(TrialState.PRUNED, None, missed.storable())
    named = ", ".join(f"{name} {recorded.named(name)}" for name in definition.objectives)
    diverged = dataclasses.replace(
        recorded,
        stopped_by=StopReason.DIVERGED.value,
        converged=False,
        failure=f"values {named}",
    )
    return TrialResult(TrialState.FAIL, None, diverged.storable())


def _missed_target(recorded: Recorded, definition: StudyDefinition) -> bool:
    """A sound training that never reached the registered loss: its time is censored, and no number
    stands for it.
    """
    if definition.objectives[0] != TimeObjective.TO_TARGET or recorded.time_to_target_s != math.inf:
        return False
    figures = recorded.val_loss, recorded.named(definition.objectives[1])
    return all(figure is not None and math.isfinite(figure) for figure in figures)
