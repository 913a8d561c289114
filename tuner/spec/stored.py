"""A study's definition as others stored it, in an exported file or a shared database: as strict as
a study file.

What is read here is printed, written into scripts and trained with; so every field has its type,
its range and no character that a terminal obeys, before anything reads it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tuner.config import TrainingSettings
from tuner.data.task import task_of
from tuner.files.plain import Digest, Label, PlainTable, Prose, Strict, harmless_data
from tuner.models.names import NetworkName, NetworkSettings, names_file
from tuner.spec.configuration import Configuration, ProgramConfiguration
from tuner.spec.loss_table import weight_problem
from tuner.spec.named_files import NamedFiles
from tuner.spec.objectives import objective_names
from tuner.spec.program import Program
from tuner.spec.space import ProgramSpace, SearchSpace
from tuner.spec.time_objectives import TimeObjective

FORMAT = 1
MOST_SEEDS = 1_000_000


class StoredNetwork(Strict):
    """An `Architecture`."""

    model: NetworkName
    settings: NetworkSettings = Field(default_factory=dict)


class StoredDefinition(Strict):
    """What `StudyDefinition.as_dict` gives."""

    format: Literal[1]
    variant: Label
    core_change: Prose
    architecture: StoredNetwork
    model_source: Digest | None
    task: PlainTable
    data_hash: Digest
    space: SearchSpace
    defaults: Configuration
    training: TrainingSettings
    seeds_per_trial: Annotated[int, Field(ge=1, le=MOST_SEEDS)]
    mql_split: Literal["test", "val", "origins"]
    objectives: tuple[str, str]
    target_val_loss: Annotated[float, Field(gt=0)] | None = None
    loss_source: Digest | None = None
    files: NamedFiles | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.objectives not in [objective_names(time, self.mql_split) for time in TimeObjective]:
            raise ValueError(
                f"objectives {list(self.objectives)!r} are none of a study on the {self.mql_split} "
                "split"
            )
        if (self.objectives[0] == "time_to_target_s") != (self.target_val_loss is not None):
            raise ValueError(
                "target_val_loss belongs to the objective time_to_target_s, and only there"
            )
        outside = self.space.contains(self.defaults.values())
        if outside:
            raise ValueError(f"defaults: {outside[0]}")
        loss = self.training.loss
        if problem := weight_problem(loss, self.space):
            raise ValueError(problem)
        of_file = loss is not None and names_file(loss.term)
        if of_file != (self.loss_source is not None):
            raise ValueError(
                "loss_source belongs to a term of a file, and says what that file held: expected "
                "its SHA-256 with FILE.py:name, and only there"
            )
        return self

    @model_validator(mode="after")
    def _is_of_a_task(self) -> Self:
        task = task_of(self.task)
        if problem := self.space.input_size_problem(
            {"name": task.name, "input_size": task.input_size}
        ):
            raise ValueError(problem)
        return self

    @property
    def program(self) -> Program | None:
        return None

    def whole_task(self) -> dict[str, Any]:
        """The task with all its keys: one that was stored
        before a key existed has that key's default.
        """
        complete = {**self.task, **task_of(self.task).definition()}
        return {str(key): harmless_data(value) for key, value in complete.items()}


class StoredProgramDefinition(StoredDefinition):
    """The same of a study whose trials are a program of somebody's own."""

    defaults: ProgramConfiguration
    space: ProgramSpace
    process: Program

    @property
    def program(self) -> Program:
        return self.process
