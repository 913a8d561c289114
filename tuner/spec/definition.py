"""A study's identity: everything that must not change
while its trials are compared with each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationInfo

from tuner.config import (
    OBJECTIVES,
    Architecture,
    Hyperparameters,
    MqlSplit,
    TrainingSettings,
    Value,
    names_file,
    own_code,
)
from tuner.data.task import task_of
from tuner.errors import StorageError, UsageError
from tuner.files.plain import (
    STRICT,
    UNREADABLE,
    Digest,
    Label,
    PlainTable,
    Prose,
    explained,
    harmless_data,
    in_json,
    read_json,
)
from tuner.models.llm_folder import FOLDER, HASH, without_path
from tuner.models.names import TIME_LLM
from tuner.spec.objectives import TimeObjective, objective_names
from tuner.spec.program import ClockLabel, NamedFiles, Program
from tuner.spec.space import (
    Configuration,
    ProgramConfiguration,
    ProgramSpace,
    SearchSpace,
    weight_problem,
)
from tuner.spec.study_file import StudyFile

FORMAT = 1
MOST_SEEDS = 1_000_000


def _space(value: Any, told: ValidationInfo) -> SearchSpace:
    form = SearchSpace if told.data.get("program") is None else ProgramSpace
    return form.model_validate_json(json.dumps(value), strict=True)


def _defaults(value: Any, told: ValidationInfo) -> Hyperparameters:
    form = Configuration if told.data.get("program") is None else ProgramConfiguration
    training = told.data.get("training")
    found = form.model_validate_json(json.dumps(value), strict=True)
    return found.hyperparameters(training and training.loss)


def _with_all_keys(task: dict[str, Any]) -> dict[str, Any]:
    """A task that was stored before a key existed has that key's default."""
    complete = {**task, **task_of(task).definition()}
    return {str(key): harmless_data(value) for key, value in complete.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDefinition:
    """One architecture on one task, with its space and fixed settings.
    Stored with the study, and hashed.
    """

    __pydantic_config__: ClassVar = STRICT

    variant: Label
    core_change: Prose
    architecture: Architecture
    model_source: Digest | None
    program: Annotated[Program | None, Field(alias="process")] = None
    """The user's own program that trains, where tuner's loop does not."""
    task: Annotated[PlainTable, AfterValidator(_with_all_keys)]
    data_hash: Digest
    training: TrainingSettings
    space: Annotated[SearchSpace, PlainValidator(_space)]
    defaults: Annotated[Hyperparameters, PlainValidator(_defaults)]
    seeds_per_trial: Annotated[int, Field(ge=1, le=MOST_SEEDS)] = 1
    mql_split: Annotated[str, Field(pattern="^(test|val|origins)$")] = "test"
    objectives: tuple[str, ...] = OBJECTIVES
    target_val_loss: Annotated[float, Field(gt=0)] | None = None
    """The registered validation loss of the objective `time_to_target_s`."""
    loss_source: Digest | None = None
    """SHA-256 of the file with the term of the training loss, as `model_source`."""
    files: NamedFiles | None = None
    """What its class reads beside it, where the study file names that."""

    @property
    def own_code(self) -> tuple[str, ...]:
        """The import strings of the user's code that a training runs: network, term of the loss."""
        loss = self.training.loss
        return own_code(self.architecture.model, *([] if loss is None else [loss.term]))

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
        return Hyperparameters.of(params, loss=self.training.loss)

    @property
    def task_name(self) -> str:
        return str(self.task["name"])

    @property
    def keeps_last_block(self) -> bool:
        """Only a confirmation forecasts the last block of the test split (`tuner.data.prepare`)."""
        return self.mql_split == MqlSplit.ORIGINS

    def as_dict(self) -> dict[str, Any]:
        """Plain data, JSON-able, the stored form."""
        data: dict[str, Any] = {
            "format": FORMAT,
            **in_json(self, "variant", "core_change", "model_source", "task", "data_hash"),
            **in_json(self, "seeds_per_trial", "mql_split"),
            "architecture": self.architecture.as_dict(),
            "space": self.space.definition(),
            "defaults": self.defaults.as_dict(),
            "training": self.training.as_dict(),
            "objectives": list(self.objectives),
        }
        later = {  # studies without one keep the identity that they always had
            "target_val_loss": self.target_val_loss,
            "process": self.program and self.program.model_dump(mode="json"),
            "loss_source": self.loss_source,
            "files": self.files and self.files.model_dump(mode="json"),
        }
        return data | {name: value for name, value in later.items() if value is not None}

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)

    def comparable(self) -> dict[str, Any]:
        """What identifies the study: without prose, and without the folder that a network's file,
        a term's, a language model, or what it reads, happens to lie in.
        """
        data = {key: value for key, value in self.as_dict().items() if key != "core_change"}
        data["task"] = {key: value for key, value in self.task.items() if key != "description"}
        data["architecture"]["model"] = without_folder(self.architecture.model)
        if self.architecture.model == TIME_LLM:
            data["architecture"]["settings"] = without_path(self.architecture.settings)
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
        plain = {"format": None, **data}
        if plain.pop("format") != FORMAT:
            raise ValueError(f"format: expected {FORMAT}")
        found = _STORED.validate_json(json.dumps(plain), strict=True)
        found.check()
        return found

    def check(self) -> None:
        """See that its parts go together, of a definition that others wrote.

        Raises:
            ValueError: they do not.
        """
        if self.objectives not in [objective_names(time, self.mql_split) for time in TimeObjective]:
            raise ValueError(
                f"objectives {list(self.objectives)!r} are none of a study on the {self.mql_split} "
                "split"
            )
        if (self.objectives[0] == "time_to_target_s") != (self.target_val_loss is not None):
            raise ValueError(
                "target_val_loss belongs to the objective time_to_target_s, and only there"
            )
        if outside := self.space.contains(self.defaults.as_dict()):
            raise ValueError(f"defaults: {outside[0]}")
        loss = self.training.loss
        of_file = loss is not None and names_file(loss.term)
        if of_file != (self.loss_source is not None):
            raise ValueError(
                "loss_source belongs to a term of a file, and says what that file held: expected "
                "its SHA-256 with FILE.py:name, and only there"
            )
        problem = weight_problem(loss, self.space) or self.space.input_size_problem(self.task)
        if problem:
            raise ValueError(problem)

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


_STORED = TypeAdapter(StudyDefinition)


def raised(stored: StudyDefinition, limit: int) -> StudyDefinition:
    """`stored` with a limit of so many epochs, where that is a higher one: what converged is the
    same under both.
    """
    training = stored.training
    if limit <= training.max_epochs:
        return stored
    return replace(stored, training=training.but(max_epochs=limit))


def without_folder(reference: str) -> str:
    """An import string without the folder of its file."""
    return reference.rpartition("/")[2]


def _source_digest(model: str) -> str | None:
    """SHA-256 of the file that holds the user's own network or term; None for a built-in one or an
    installed module.
    """
    location = model.rpartition(":")[0]
    if not location.endswith(".py") or not Path(location).is_file():
        return None
    return hashlib.sha256(Path(location).read_bytes()).hexdigest()


# What differs between a study's stored definition and one that is asked for, in words.


def differences(stored: StudyDefinition, asked: StudyDefinition) -> list[str]:
    """What differs between two definitions, one phrase each, e.g. `training.max_epochs: 200 there,
    3 asked`.
    """
    there, here = _flat(stored.comparable()), _flat(asked.comparable())
    changed, phrases = changed_files(stored, asked), []
    for key in sorted(there.keys() | here.keys()):
        if key in changed:
            phrases.append(f"{changed[key]} changed since the study was made")
        elif there.get(key) != here.get(key):
            phrases.append(
                f"{key}: {there.get(key, 'absent')} there, {here.get(key, 'absent')} asked"
            )
    return phrases


def changed_files(stored: StudyDefinition, asked: StudyDefinition) -> dict[str, str]:
    """The user's files that both name and that are not what they were, by the keys of their hashes
    in the definition: relative to the current folder where they lie in it.
    """
    found = {}
    for field in ("model_source", "loss_source"):
        there, here = (_named_for(field, each) for each in (stored, asked))
        before, now = getattr(stored, field), getattr(asked, field)
        same_name = without_folder(there) == without_folder(here)
        if same_name and before != now and None not in (before, now):
            of_program = field == "model_source" and asked.program is not None
            found[field] = "the program of [process]" if of_program else _near(here)
    hashes = {d.architecture.settings.get(HASH) for d in (stored, asked)}
    if len(hashes - {None}) > 1:
        folder = asked.architecture.settings[FOLDER]
        found[f"architecture.settings.{HASH}"] = f"the language model in {folder}"
    files, asked_files = ({} if d.files is None else d.files.sha256 for d in (stored, asked))
    changed = [name for name, now in asked_files.items() if files.get(name, now) != now]
    return found | {f"files.{name}": name for name in changed}


def _named_for(field: str, definition: StudyDefinition) -> str:
    """The import string whose file has its hash in this field."""
    if field == "model_source":
        return definition.architecture.model
    return "" if definition.training.loss is None else definition.training.loss.term


def _near(reference: str) -> str:
    path = Path(reference.rpartition(":")[0])
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        k: v
        for key, inner in value.items()
        for k, v in _flat(inner, f"{prefix}.{key}" if prefix else key).items()
    }


def stored_definition(name: str, stored: str) -> StudyDefinition:
    """What a study is. Raises StorageError where it is another version's, or damaged."""
    try:
        return StudyDefinition.from_json(stored)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({explained(error)}): it was "
            "made by another version of tuner, or is damaged; use that version, restore a backup, "
            "or start another study with --study NAME"
        ) from None
