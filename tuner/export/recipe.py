"""What a training needs of a configuration,
from a study or from the TOML file it was written to.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from tuner.config import EXECUTED, Architecture, Hyperparameters, TrainingSettings
from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.files.plain import Count, Digest, Label, PlainTable, Prose, Strict
from tuner.files.toml_file import read_toml, validate
from tuner.models.names import NetworkName, NetworkSettings, names_own_code
from tuner.spec.configuration import Configuration
from tuner.spec.program import MODEL as PROGRAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A configuration to train: network, hyperparameters,
    protocol; `origin` is the record it was taken from.
    """

    task: str
    architecture: Architecture
    hyperparameters: Hyperparameters
    training: TrainingSettings
    origin: dict[str, Any]

    @property
    def own_code(self) -> tuple[str, ...]:
        """The import strings of the user's code that its training runs."""
        loss = self.training.loss
        named = [self.architecture.model, *([] if loss is None else [loss.term])]
        return tuple(each for each in named if names_own_code(each))

    @property
    def data_hash(self) -> str | None:
        """The hash of the data it was found on, if it is known."""
        found = self.origin.get("provenance", {}).get("data_hash")
        return str(found) if found else None

    @staticmethod
    def of(config: BestConfig) -> Recipe:
        """The recipe of a configuration from a study.

        Raises:
            UsageError: its network is a class that only an exported study names, and nobody said to
                trust it.
        """
        config.refuse_untrusted()
        usual = {name: TrainingSettings.model_fields[name].default for name in EXECUTED}
        return Recipe(
            task=config.task,
            architecture=config.architecture,
            hyperparameters=config.hyperparameters,
            training=config.training.but(**usual),
            origin=config.as_dict(),
        )


class _Network(Strict):
    model: NetworkName
    settings: NetworkSettings = Field(default_factory=dict)


class _Provenance(Strict):
    """What of a configuration's origin is read again; the rest is carried along."""

    model_config = ConfigDict(frozen=True, extra="allow")

    data_hash: Digest | None = None


class _File(Strict):
    """What `tuner best --format toml` writes;
    beyond the first three, what is left out has its default.
    """

    task: Label
    params: Configuration
    architecture: _Network
    training: TrainingSettings = TrainingSettings()
    variant: Prose = ""
    study: Prose = ""
    trial: Count | None = None
    pick: Prose = ""
    chosen_on: Prose = ""
    why: Prose = ""
    values: dict[Label, float] = Field(default_factory=dict)
    expected: dict[Label, float] | None = None
    recommendation: PlainTable | None = None
    verified: PlainTable | None = None
    confirmed: PlainTable | None = None
    baselines: dict[Label, float] | None = None
    test_baselines: dict[Label, float] | None = None
    provenance: PlainTable = Field(default_factory=dict)

    @field_validator("training")
    @classmethod
    def _is_no_execution(cls, value: TrainingSettings) -> TrainingSettings:
        for name in EXECUTED:
            if value.says(name):
                raise ValueError(
                    f"{name}: says how a training is executed, which is no part of a "
                    "configuration; remove it"
                )
        return value

    @field_validator("provenance")
    @classmethod
    def _hash_is_a_text(cls, value: dict[str, Any]) -> dict[str, Any]:
        _Provenance.model_validate(value)
        return value


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file of `tuner best --format toml`.

    Raises:
        UsageError: no such file, or one that is not of this form (file, line, key and remedy are
            named).
    """
    document = read_toml(path)
    network = document.data.get("architecture")
    if isinstance(network, dict) and network.get("model") == PROGRAM:
        raise UsageError(
            f"{path}: is of a study that trains a program of its user's, which tuner cannot train "
            "by itself; give the [params] to that program"
        )
    file = validate(document, _File)
    return Recipe(
        task=file.task,
        architecture=Architecture(
            model=file.architecture.model, settings=file.architecture.settings
        ),
        hyperparameters=file.params.beside(file.architecture.settings, file.training.loss),
        training=file.training,
        origin=file.model_dump(mode="json", exclude_defaults=True),
    )
