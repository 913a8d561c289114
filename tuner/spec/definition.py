"""A study's identity: everything that must not change
while its trials are compared with each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.config import (
    OBJECTIVES,
    OF_TRAINING,
    Architecture,
    Hyperparameters,
    MqlSplit,
    TrainingSettings,
    Value,
)
from tuner.errors import UsageError
from tuner.files.plain import read_json
from tuner.models.names import names_own_code
from tuner.spec.configuration import of_training_beside
from tuner.spec.named_files import NamedFiles
from tuner.spec.objectives import objective_names
from tuner.spec.program import ClockLabel, Program
from tuner.spec.space import SearchSpace
from tuner.spec.stored import FORMAT, StoredDefinition, StoredProgramDefinition
from tuner.spec.study_file import StudyFile


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDefinition:
    """One architecture on one task, with its space and fixed settings.
    Stored with the study, and hashed.
    """

    variant: str
    core_change: str
    architecture: Architecture
    model_source: str | None
    task: dict[str, Any]
    data_hash: str
    space: SearchSpace
    defaults: Hyperparameters
    training: TrainingSettings
    seeds_per_trial: int = 1
    mql_split: str = "test"
    objectives: tuple[str, ...] = OBJECTIVES
    target_val_loss: float | None = None
    """The registered validation loss of the objective `time_to_target_s`."""
    program: Program | None = None
    """The user's own program that trains, where tuner's loop does not."""
    loss_source: str | None = None
    """SHA-256 of the file with the term of the training loss, as `model_source`."""
    files: NamedFiles | None = None
    """What its class reads beside it, where the study file names that."""
    of_training: tuple[str, ...] = OF_TRAINING
    """Of the user's own hyperparameters, those that stand for a setting of training."""

    @property
    def own_code(self) -> tuple[str, ...]:
        """The import strings of the user's code that a training runs: network, term of the loss."""
        loss = self.training.loss
        named = [self.architecture.model, *([] if loss is None else [loss.term])]
        return tuple(each for each in named if names_own_code(each))

    @property
    def clock(self) -> ClockLabel:
        """Whose clock its times are by."""
        return ClockLabel.TUNER if self.program is None else self.program.label

    def hyperparameters(self, params: Mapping[str, Value]) -> Hyperparameters:
        """The typed record of a trial's true values.

        Raises:
            KeyError: a network's lack what every training has to have.
        """
        if self.program is not None:
            return Hyperparameters.for_program(params)
        return Hyperparameters.of(params, self.of_training, loss=self.training.loss)

    @property
    def task_name(self) -> str:
        return str(self.task["name"])

    @property
    def keeps_last_block(self) -> bool:
        """Only a confirmation forecasts the last block of the test split (`tuner.data.origins`)."""
        return self.mql_split == MqlSplit.ORIGINS

    def as_dict(self) -> dict[str, Any]:
        """Plain data, JSON-able, the stored form."""
        data: dict[str, Any] = {
            "format": FORMAT,
            "variant": self.variant,
            "core_change": self.core_change,
            "architecture": {
                "model": self.architecture.model,
                "settings": dict(self.architecture.settings),
            },
            "model_source": self.model_source,
            "task": self.task,
            "data_hash": self.data_hash,
            "space": self.space.definition(),
            "defaults": self.defaults.as_dict(),
            "training": self.training.as_dict(),
            "seeds_per_trial": self.seeds_per_trial,
            "mql_split": self.mql_split,
            "objectives": list(self.objectives),
        }
        if (
            self.target_val_loss is not None
        ):  # studies without one keep the identity that they always had
            data["target_val_loss"] = self.target_val_loss
        if self.program is not None:
            data["process"] = self.program.model_dump(mode="json")
        if self.loss_source is not None:
            data["loss_source"] = self.loss_source
        if self.files is not None:
            data["files"] = self.files.model_dump(mode="json")
        for name in _unclear(self.architecture, self.space):
            if name in self.of_training:  # that it is there says so
                data["training"].setdefault(name, getattr(self.training, name))
        return data

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)

    def comparable(self) -> dict[str, Any]:
        """What identifies the study: without prose, and without the folder that a network's file,
        a term's, or what it reads, happens to lie in.
        """
        data = {key: value for key, value in self.as_dict().items() if key != "core_change"}
        data["task"] = {key: value for key, value in self.task.items() if key != "description"}
        model = without_folder(self.architecture.model)
        data["architecture"] = {"model": model, "settings": dict(self.architecture.settings)}
        loss = self.training.loss
        if loss is not None:
            named = {"term": without_folder(loss.term), "weight": loss.weight}
            data["training"] = {**data["training"], "loss": named}
        if self.program is not None:
            data["process"] = self.program.comparable()
        if self.files is not None:
            data["files"] = self.files.sha256
        return data

    def identity(self) -> str:
        """SHA-256 of what identifies the study."""
        return hashlib.sha256(json.dumps(self.comparable(), sort_keys=True).encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> StudyDefinition:
        return StudyDefinition.from_dict(read_json(text))

    @staticmethod
    def from_dict(data: Any) -> StudyDefinition:
        """The definition that `as_dict` gave.

        Raises:
            ValueError: it is of another version, or damaged.
        """
        of_program = isinstance(data, dict) and "process" in data
        form = StoredProgramDefinition if of_program else StoredDefinition
        stored = form.model_validate_json(json.dumps(data), strict=True)
        architecture = Architecture(
            model=stored.architecture.model, settings=stored.architecture.settings
        )
        of_network = set(_unclear(architecture, stored.space)) - stored.training.model_fields_set
        of_training = of_training_beside(of_network)
        defaults = stored.defaults.hyperparameters(stored.training.loss)
        return StudyDefinition(
            variant=stored.variant,
            core_change=stored.core_change,
            architecture=architecture,
            model_source=stored.model_source,
            task=stored.whole_task(),
            data_hash=stored.data_hash,
            space=stored.space,
            defaults=replace(defaults, of_training=of_training),
            training=stored.training,
            seeds_per_trial=stored.seeds_per_trial,
            mql_split=stored.mql_split,
            objectives=stored.objectives,
            target_val_loss=stored.target_val_loss,
            program=stored.program,
            loss_source=stored.loss_source,
            files=stored.files,
            of_training=of_training,
        )

    @staticmethod
    def of(
        file: StudyFile,
        *,
        task: dict[str, Any],
        data_hash: str,
        training: TrainingSettings,
        seeds_per_trial: int = 1,
        time_objective: str = OBJECTIVES[0],
        mql_split: str = "test",
        target_val_loss: float | None = None,
    ) -> StudyDefinition:
        """The definition of a study file's variant on a task.

        Raises:
            UsageError: the space goes beyond the past that the task's windows have.
        """
        if problem := file.space.input_size_problem(task):
            raise UsageError(problem)
        return StudyDefinition(
            variant=file.name,
            core_change=file.core_change,
            architecture=file.architecture(),
            model_source=file.program.digest() if file.program else _source_digest(file.model),
            task=task,
            data_hash=data_hash,
            space=file.space,
            defaults=file.default_hyperparameters(),
            training=training,
            seeds_per_trial=seeds_per_trial,
            mql_split=mql_split,
            objectives=objective_names(time_objective, mql_split),
            target_val_loss=target_val_loss,
            program=file.program,
            loss_source=None if training.loss is None else _source_digest(training.loss.term),
            files=file.named_files(),
        )


def without_folder(reference: str) -> str:
    """An import string without the folder of its file."""
    return reference.rpartition("/")[2]


def _unclear(architecture: Architecture, space: SearchSpace) -> tuple[str, ...]:
    """What the user may have meant as an argument of a class, before it was a setting of training.

    A program's are its own, and no built-in network takes one.
    """
    of_class = ":" in architecture.model
    return tuple(name for name in OF_TRAINING if of_class and name in space.own)


def _source_digest(model: str) -> str | None:
    """SHA-256 of the file that holds the user's own network or term; None for a built-in one or an
    installed module.
    """
    location = model.rpartition(":")[0]
    if not location.endswith(".py") or not Path(location).is_file():
        return None
    return hashlib.sha256(Path(location).read_bytes()).hexdigest()
