"""Study files: one readable TOML a variant, with its space, its defaults, and what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tuner.config import (
    BUILT_IN,
    LIBRARY,
    MOST_ACCUMULATED,
    OF_THE_TASK,
    OF_TRAINING,
    Architecture,
    Hyperparameters,
    NetworkName,
    NetworkSettings,
    TrainingSettings,
    library_class,
)
from tuner.errors import UsageError, guess, unknown_name
from tuner.files.plain import Prose
from tuner.files.toml_file import TomlDocument, read_toml, validate
from tuner.models.llm_folder import FOLDER, with_hash
from tuner.models.names import TIME_LLM
from tuner.models.of_neuralforecast.auto_space import study_of_library
from tuner.models.of_neuralforecast.library_source import (
    check_names,
    constructor_arguments,
    list_in,
    model_names,
    take_our_norm,
)
from tuner.models.registry import check_name
from tuner.spec.program import MODEL, NamedFiles, Patterns, Program, ProgramTable
from tuner.spec.space import (
    Configuration,
    ProgramConfiguration,
    ProgramSpace,
    SearchSpace,
    named_weight,
    weight_problem,
)

# The defaults of a study file, which are the first trial of its study: are they in its space?


def wrong_default(space: SearchSpace, defaults: Configuration) -> str | None:
    """What is wrong with the first of them that cannot be tried, with the remedy; else None.

    A whole number with a point is refused, too: a network would be given 2.0 for its depth.
    """
    outside = space.contains(defaults.values())
    if outside:
        name, _, wrong = outside[0].partition(" ")
        remedy = "so change them, or widen the range"
        if wrong == "is missing":
            remedy = "so add it"
        elif wrong.startswith("is there only where"):
            remedy = "so leave it out"
        return f"defaults.{name}: {name} {wrong}; the defaults are the first trial, {remedy}"
    for name, value in defaults.own.items():
        r = space.own[name]
        if r.whole and not r.named and isinstance(value, float):
            return (
                f"defaults.{name}: {name} = {value} has a point, and [space.{name}] is of whole "
                f"numbers; write {value:.0f}"
            )
    return None


# What a study file gives a value that belongs elsewhere, or that its network does not take.


def misplaced(file: StudyFile) -> str | None:
    """The first value that is not taken where it stands, as `KEY: problem`; None where all are."""
    for name in file.space.ranges:
        if name in file.model_settings:
            if name in BUILT_IN and file.space.ranges[name].single:
                rule = f"{name} is the study's; a fixed one belongs in [defaults]"
            else:
                rule = f"{name} is searched; leave it out, or [space.{name}]"
            return f"model_settings.{name}: {rule}"
    if problem := _of_library(file):
        return problem
    for name, value in file.defaults.own.items():
        if name not in file.space.own:
            return f"defaults.{name}: there is no [space.{name}]{_place(file, name, value)}"
    return None


def _place(file: StudyFile, name: str, value: Any) -> str:
    """Where a value without a range belongs."""
    if file.program is not None:
        near = guess(name, file.space.ranges)
        return f"{near}; what a program always gets belongs in the command of [process]"
    if name in OF_THE_TASK:
        return (
            f'; the task says it: leave it out, or add [space.{name}] with type = "int", '
            f"low = {value} and high = {value}, which fixes it"
        )
    if name in OF_TRAINING:
        return "; a fixed one belongs in [training]"
    near = guess(name, [*BUILT_IN, *file.space.own])
    return f"{near}; a fixed argument of the network belongs in [model_settings]"


def _of_library(file: StudyFile) -> str | None:
    """Of a model of neuralforecast: a name that it does not take, or a list that is none. What
    else a value may be, only the class knows.
    """
    name = library_class(file.model)
    if name is None:
        return None
    try:
        names = model_names()
        taken = constructor_arguments(name) if name in names else ()
    except UsageError:  # not installed here, or not as we know it: a training will say so
        return None
    if name not in names:
        return f"model: {unknown_name(f'model of {LIBRARY}', name, names)}"
    for key, argument, value in _given(file):
        if (key, argument) == ("space", "revin"):  # whose default has been looked at
            continue
        try:
            given = {argument: list_in(value)}
            take_our_norm(file.model, taken, given)
            check_names(file.model, given, taken)
        except UsageError as error:
            return f"{key}.{argument}: {error}"
    return None


def _given(file: StudyFile) -> Iterator[tuple[str, str, Any]]:
    """Table, name and value of whatever a network is built with; a range has no one value."""
    for argument, value in file.model_settings.items():
        yield "model_settings", argument, value
    loss = file.training.loss
    apart = {"learning_rate", "weight_decay", "batch_size", *OF_THE_TASK, *OF_TRAINING}
    apart |= {loss.weight} if loss is not None and isinstance(loss.weight, str) else set()
    defaults: Mapping[str, Any] = file.defaults.values()
    for key, table in (("defaults", defaults), ("space", dict.fromkeys(file.space.ranges))):
        for argument, value in table.items():
            if argument not in apart:
                yield key, argument, value


_IMPORT_STRING = re.compile(r"(?:[\w.]+|.*\.py):\w+")
"""`package.module:Class` or `path/to/file.py:Class`."""


class StudyFile(BaseModel):
    """A validated study file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)]
    title: Prose = ""
    core_change: Prose
    why: Prose = ""
    source: Prose = ""
    model: NetworkName
    model_settings: NetworkSettings = {}
    defaults: Configuration
    """The first trial of every study."""
    space: SearchSpace
    training: TrainingSettings = TrainingSettings()
    files: Patterns = ()
    """Patterns of what its class reads, such as weights: these must not change meanwhile."""
    folder: Annotated[str, Field(exclude=True)] = "."
    """Where the file lies; no key of it."""

    @model_validator(mode="after")
    def _fits_together(self) -> StudyFile:
        if problem := misplaced(self):
            raise ValueError(problem)
        if problem := wrong_default(self.space, self.defaults):
            raise ValueError(problem)
        if ":" not in self.model and self.program is None:
            _check_name(self.model)
            missing = [name for name in BUILT_IN if name not in self.space.ranges]
            if missing:
                raise ValueError(f"defaults.{missing[0]}: is missing, and {self.model} needs it")
        return self

    @model_validator(mode="after")
    def _is_searched_or_fixed(self) -> StudyFile:
        if self.program is not None:  # whatever it calls one is its own
            return self
        for name in OF_TRAINING:
            r = self.space.own.get(name)
            if r is None:
                continue
            if not r.whole:
                raise ValueError(
                    f'space.{name}: is no range of whole numbers; expected type = "int", or '
                    "another name for what is the network's"
                )
            if not 1 <= r.bounds()[0] <= r.bounds()[1] <= MOST_ACCUMULATED:
                raise ValueError(
                    f"space.{name}: is {r.in_words()}; expected 1 to {MOST_ACCUMULATED}, or "
                    "another name for what is the network's"
                )
            if name in self.training.model_fields_set:
                raise ValueError(
                    f"training.{name}: {name} is searched; leave it out, or [space.{name}]"
                )
        if problem := weight_problem(self.training.loss, self.space):
            raise ValueError(problem)
        return self

    @property
    def program(self) -> Program | None:
        """The user's own program that trains, where no network of tuner's does."""
        return None

    def named_files(self) -> NamedFiles | None:
        """Raises UsageError as `NamedFiles.of`."""
        return NamedFiles.of(self.files, Path(self.folder)) if self.files else None

    def architecture(self) -> Architecture:
        """Raises UsageError where it needs a language model's folder, and has none."""
        settings = self.model_settings
        if self.model == TIME_LLM:
            settings = with_hash(settings)
        return Architecture(model=self.model, settings=settings)

    def default_hyperparameters(self) -> Hyperparameters:
        return self.defaults.hyperparameters(self.training.loss)


class ProgramStudyFile(StudyFile):
    """A validated study file of a program."""

    model: Literal["process"] = MODEL  # type: ignore[assignment]
    defaults: ProgramConfiguration
    space: ProgramSpace
    process: ProgramTable

    @model_validator(mode="after")
    def _names_a_program(self) -> ProgramStudyFile:
        if self.model_settings:
            raise ValueError(
                "model_settings: belong to a network; what a program always gets belongs in the "
                "command of [process]"
            )
        if self.files:
            raise ValueError("files: belong in [process] where a program trains")
        for name in self.training.unusual():
            if name != "gpus_per_trial":
                raise ValueError(
                    f"training.{name}: is for networks that tuner trains; the program does as it "
                    "does: leave it out"
                )
        if not self.space.ranges:
            raise ValueError("space: is empty; expected a range for what is to be searched")
        return self

    @property
    def program(self) -> Program:
        return Program(**self.process.model_dump(), folder=str(Path(self.folder)))


def studies_folder() -> Path:
    """Where the built-in study files are:
    inside an installed wheel, or beside the package in a checkout.
    """
    package = Path(__file__).parent.parent
    return next(f for f in (package / "studies", package.parent / "studies") if f.is_dir())


def _check_name(model: str) -> None:
    try:
        check_name(model)
    except UsageError as error:
        raise ValueError(f"model: {error}") from None


def builtin_variants() -> tuple[str, ...]:
    """Names of the variants that come with tuner."""
    return tuple(sorted(path.stem for path in studies_folder().glob("*.toml")))


def load_study_file(variant: str) -> StudyFile:
    """The study file of a built-in variant, of a path to the user's own `.toml`, or made for a
    class.

    A model of neuralforecast, `neuralforecast:NAME`, gets the space that the library would search
    itself. A class of the user's own, `package.module:Class` or `file.py:Class`, gets the space and
    defaults of `original`: enough to begin with.

    Raises:
        UsageError: unknown name, no such file, or a file that does not say what it should (file,
            line, key, remedy).
    """
    if _IMPORT_STRING.fullmatch(variant):
        return _beside(Path("study.toml"), _of_class(variant))
    if variant.endswith(".py"):
        check_name(variant)  # which says that the class is missing
    if variant.endswith(".toml") or "/" in variant:
        path = Path(variant)
        if not path.exists():
            raise UsageError(
                f"--variant: there is no study file {variant}; expected a built-in name or a .toml "
                "file"
            )
    else:
        if variant not in builtin_variants():
            more = "; or a path to your own study .toml"
            if Path(f"{variant}.toml").is_file():
                more += f", as {variant}.toml here"
            raise unknown_name("variant", variant, builtin_variants(), more=more)
        path = studies_folder() / f"{variant}.toml"
    document = read_toml(path)
    if "folder" in document.data:
        raise UsageError(f"{document.where(('folder',))}: key 'folder': unknown; remove it")
    if "process" in document.data:
        return _of_program(document)
    return _beside(path, validate(_with_fixed(document), StudyFile))


def _of_program(document: TomlDocument) -> ProgramStudyFile:
    """A program's study file. One that has a default and no range is fixed, as with a network."""
    file = validate(_with_fixed(document, usual={}), ProgramStudyFile)
    return file.model_copy(update={"folder": str(document.path.parent.absolute())})


_NO_DECAY: Mapping[str, Any] = {"weight_decay": 0.0}


def _with_fixed(document: TomlDocument, usual: Mapping[str, Any] = _NO_DECAY) -> TomlDocument:
    """A built-in hyperparameter that has a default and no range is fixed: its range is that value;
    a weight decay that nobody names is none, as `usual`. So is the weight of the training loss's
    term.
    """
    defaults, space = document.data.get("defaults"), document.data.get("space")
    if not (isinstance(defaults, dict) and isinstance(space, dict)):
        return document
    values = {**usual, **defaults}
    fixed: dict[str, Any] = {}
    for name in BUILT_IN:
        if name in values and name not in space:
            whole = isinstance(values[name], int) and name in ("hidden_size", "batch_size")
            fixed[name] = {"low": values[name], "high": values[name]}
            if whole and values[name] & (values[name] - 1):
                fixed[name] |= {"type": "int"}
    weight = named_weight(document.data)
    if weight in values and weight not in (*space, *BUILT_IN):
        fixed[weight] = {"type": "float", "low": values[weight], "high": values[weight]}
    return replace(document, data=document.data | {"space": {**space, **fixed}})


def _of_class(reference: str) -> StudyFile:
    of_library = library_class(reference)
    if of_library is not None:
        proposed = TomlDocument(data=study_of_library(of_library), path=Path(reference))
        return validate(_with_fixed(proposed), StudyFile)
    location, _, name = reference.rpartition(":")
    place = Path(location).stem if location.endswith(".py") else location.rpartition(".")[2]
    return load_study_file("original").model_copy(
        update={
            "name": f"{place.lstrip('_')}.{name.lstrip('_')}",
            "title": reference,
            "core_change": f"{name} of {Path(location).name}",
            "why": "",
            "source": "",
            "model": reference,
            "model_settings": {},
        }
    )


def _beside(path: Path, file: StudyFile) -> StudyFile:
    """A network's `file.py:Class`, a term's, and a language model's folder is relative to the study
    file that names it, wherever the command runs.
    """
    loss = file.training.loss
    if loss is not None:
        loss = loss.model_copy(update={"term": _placed(path, loss.term)})
    training = file.training.model_copy(update={"loss": loss})
    model = _placed(path, file.model)
    folder = str(path.parent.absolute()) if file.files else file.folder
    update = {"model": model, "training": training, "folder": folder}
    if model == TIME_LLM and (llm := file.model_settings.get(FOLDER)):
        placed = str((path.parent / Path(str(llm)).expanduser()).absolute())
        update["model_settings"] = {**file.model_settings, FOLDER: placed}
    return file.model_copy(update=update)


def _placed(path: Path, reference: str) -> str:
    location, _, name = reference.rpartition(":")
    if not location.endswith(".py"):
        return reference
    return f"{(path.parent / Path(location).expanduser()).absolute()}:{name}"
