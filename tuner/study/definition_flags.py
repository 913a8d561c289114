"""What a study is, in the words of the launch that would make it."""

from __future__ import annotations

from tuner.settings import NONE, exact
from tuner.spec.definition import StudyDefinition


def flags_of(definition: StudyDefinition) -> dict[str, str]:
    """The settings of a launch that are part of what a study is, as flags."""
    training, target = definition.training, definition.target_val_loss
    checkpoints = training.checkpoint_activations
    return {
        "max_epochs": f"--max-epochs {training.max_epochs}",
        "seeds": f"--seeds {definition.seeds_per_trial}",
        "backend": f"--backend {training.backend.value}",
        "precision": f"--precision {training.precision.value}",
        "accumulate": f"--accumulate {training.accumulate}",
        "checkpoint_activations": f"--{'' if checkpoints else 'no-'}checkpoint-activations",
        "compile_mode": f"--compile-mode {training.compile_mode.value}",
        "validate_every": f"--validate-every {training.validate_every}",
        "time_objective": f"--time-objective {definition.objectives[0]}",
        "target_val_loss": f"--target-val-loss {NONE if target is None else exact(target)}",
        "mql_split": f"--mql-split {definition.mql_split}",
    }
