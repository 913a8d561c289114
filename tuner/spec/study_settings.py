"""What a launch says of what its studies are, beside variant and task."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tuner.config import MANY, MqlSplit, TrainingSettings
from tuner.settings import NUMBER, Flag, flags
from tuner.spec.objectives import TimeObjective, objective_names

if TYPE_CHECKING:
    from tuner.spec.definition import StudyDefinition


class StudySettings(TrainingSettings):
    """What is part of what a study is, beside its variant and its task.

    Only what is named counts: the rest is the study file's, the study's, or a new study's.
    """

    seeds: Annotated[
        int,
        Field(ge=1, le=MANY),
        Flag("--seeds", "Train each configuration with so many seeds; medians count (1).", "N"),
    ] = 1
    """Trainings of each configuration; medians count."""
    time_objective: Annotated[
        TimeObjective,
        Flag("--time-objective", "Which time is minimised (a new study: wall_clock_s)."),
    ] = TimeObjective.WALL_CLOCK
    target_val_loss: Annotated[
        float | None,
        Field(gt=0),
        Flag(
            "--target-val-loss",
            "The validation loss of --time-objective time_to_target_s.",
            "X",
            NUMBER,
        ),
    ] = None
    """For the time to a target, and for nothing else."""
    mql_split: Annotated[
        MqlSplit | None,
        Flag(
            "--mql-split",
            "Which split's MQL is minimised (built-in tasks: test, own data: val); origins keeps "
            "the last block of the test split for confirmations.",
        ),
    ] = None
    """None: the task's usual one."""

    @staticmethod
    def of(definition: StudyDefinition) -> StudySettings:
        """Those of a study."""
        training = definition.training
        return StudySettings(
            **{name: getattr(training, name) for name in TrainingSettings.model_fields},
            seeds=definition.seeds_per_trial,
            time_objective=TimeObjective(definition.objectives[0]),
            target_val_loss=definition.target_val_loss,
            mql_split=MqlSplit(definition.mql_split),
        )

    def trained(self, training: TrainingSettings) -> TrainingSettings:
        """`training` with what was said of it in its place."""
        said = self.said()
        return training.but(**{n: v for n, v in said.items() if n in TrainingSettings.model_fields})


def resumed(
    stored: StudyDefinition, asked: StudyDefinition, said: Collection[str]
) -> StudyDefinition:
    """`asked`, but with those settings of a launch that nobody `said` as the `stored` definition
    has them. What no flag says is the file's: one that says another asks for another study.
    """
    if "time_objective" in said:
        said = {*said, "target_val_loss"}  # they belong together
    there, here = StudySettings.of(stored), StudySettings.of(asked)
    now = here.but(
        **{name: getattr(there, name) for name in flags(StudySettings) if name not in said}
    )
    return dataclasses.replace(
        asked,
        training=now.trained(asked.training),
        seeds_per_trial=now.seeds,
        mql_split=str(now.mql_split),
        objectives=objective_names(now.time_objective, str(now.mql_split)),
        target_val_loss=now.target_val_loss,
    )
