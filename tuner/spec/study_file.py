"""Study files: one readable TOML a variant, with its space, its defaults, and what it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tuner.config import Architecture, Hyperparameters, TrainingSettings
from tuner.errors import UsageError, unknown_name
from tuner.files.plain import Prose
from tuner.files.toml_file import read_toml, validate
from tuner.models.names import NetworkName, NetworkSettings
from tuner.spec.space import LARGEST_SIZE, SearchSpace

MOST_EPOCHS = 1_000_000_000
_IMPORT_STRING = re.compile(r"(?:[\w.]+|.*\.py):\w+")
"""`package.module:Class` or `path/to/file.py:Class`."""


class Defaults(BaseModel):
    """The configuration that is every study's first trial."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    learning_rate: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    dropout: Annotated[float, Field(ge=0, lt=1)]
    hidden_size: Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
    batch_size: Annotated[int, Field(ge=1, le=LARGEST_SIZE)]


class FixedTraining(BaseModel):
    """The fixed settings of training; what a file leaves out has the protocol's value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    max_epochs: Annotated[int, Field(gt=0, le=MOST_EPOCHS)] = 200
    patience: Annotated[int, Field(gt=0, le=MOST_EPOCHS)] = 10
    min_delta: Annotated[float, Field(ge=0)] = 1e-5
    gradient_clip: Annotated[float, Field(gt=0)] = 1.0
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = 0.999


class StudyFile(BaseModel):
    """A validated study file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=200)]
    title: Prose = ""
    core_change: Prose
    why: Prose = ""
    source: Prose = ""
    model: NetworkName
    model_settings: NetworkSettings = {}
    defaults: Defaults
    space: SearchSpace
    training: FixedTraining = FixedTraining()

    @model_validator(mode="after")
    def _defaults_inside(self) -> StudyFile:
        outside = self.space.contains(self.defaults.model_dump())
        if outside:
            raise ValueError(
                f"defaults: {outside[0]}; the defaults are the first trial, so widen the range"
            )
        return self

    def architecture(self) -> Architecture:
        return Architecture(model=self.model, settings=self.model_settings)

    def default_hyperparameters(self) -> Hyperparameters:
        return Hyperparameters(**self.defaults.model_dump())

    def training_settings(self) -> TrainingSettings:
        return TrainingSettings(**self.training.model_dump())


def studies_folder() -> Path:
    """Where the built-in study files are:
    inside an installed wheel, or beside the package in a checkout.
    """
    package = Path(__file__).parent.parent
    return next(f for f in (package / "studies", package.parent / "studies") if f.is_dir())


def builtin_variants() -> tuple[str, ...]:
    """Names of the variants that come with tuner."""
    return tuple(sorted(path.stem for path in studies_folder().glob("*.toml")))


def load_study_file(variant: str) -> StudyFile:
    """The study file of a built-in variant, of a path to the user's own `.toml`, or made for a
    class of the user's own.

    A class, `package.module:Class` or `file.py:Class`, gets the space and defaults of `original`:
    enough to begin with.

    Raises:
        UsageError: unknown name, no such file, or a file that does not say what it should (file,
            line, key, remedy).
    """
    if _IMPORT_STRING.fullmatch(variant):
        return _beside(Path("study.toml"), _of_class(variant))
    if variant.endswith(".toml") or "/" in variant:
        path = Path(variant)
        if not path.exists():
            raise UsageError(
                f"--variant: there is no study file {variant}; expected a built-in name or a .toml "
                "file"
            )
    else:
        if variant not in builtin_variants():
            raise unknown_name(
                "variant", variant, builtin_variants(), more="; or a path to your own study .toml"
            )
        path = studies_folder() / f"{variant}.toml"
    return _beside(path, validate(read_toml(path), StudyFile))


def _of_class(reference: str) -> StudyFile:
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
    """A network's `file.py:Class` is relative to the study
    file that names it, wherever the command runs.
    """
    location, _, name = file.model.rpartition(":")
    if not location.endswith(".py"):
        return file
    return file.model_copy(
        update={"model": f"{(path.parent / Path(location).expanduser()).absolute()}:{name}"}
    )
