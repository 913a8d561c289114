"""What a training needs of a configuration, from a study or from the TOML file it was written to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tuner.config import Architecture, Hyperparameters, Precision, TrainingSettings
from tuner.export.record import PROTOCOL_SETTINGS, BestConfig
from tuner.tomlfile import read_toml, validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A configuration to train: network, hyperparameters, protocol; `origin` is the record it was taken from."""

    task: str
    architecture: Architecture
    hyperparameters: Hyperparameters
    training: TrainingSettings
    origin: dict[str, Any]

    @property
    def data_hash(self) -> str | None:
        """The hash of the data it was found on, if it is known."""
        found = self.origin.get("provenance", {}).get("data_hash")
        return str(found) if found else None

    @staticmethod
    def of(config: BestConfig) -> Recipe:
        """The recipe of a configuration from a study."""
        kept = {name: getattr(config.training, name) for name in PROTOCOL_SETTINGS}
        return Recipe(
            task=config.task,
            architecture=config.architecture,
            hyperparameters=config.hyperparameters,
            training=TrainingSettings(**kept),
            origin=config.as_dict(),
        )


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Params(_Strict):
    learning_rate: float
    weight_decay: float
    dropout: float
    hidden_size: int
    batch_size: int


class _Network(_Strict):
    model: str
    settings: dict[str, Any] = {}


class _Protocol(_Strict):
    max_epochs: int = 200
    patience: int = 10
    min_delta: float = 1e-5
    gradient_clip: float = 1.0
    learning_rate_decay: float = 0.999
    precision: Precision = Precision.FP32


class _File(_Strict):
    """What `tuner best --format toml` writes; beyond the first three, what is left out has its default."""

    task: str
    params: _Params
    architecture: _Network
    training: _Protocol = _Protocol()
    variant: str = ""
    study: str = ""
    trial: int | None = None
    pick: str = ""
    values: dict[str, float] = {}
    verified: dict[str, Any] | None = None
    provenance: dict[str, Any] = {}


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file of `tuner best --format toml`.

    Raises:
        UsageError: no such file, or one that is not of this form (file, line, key and remedy are named).
    """
    file = validate(read_toml(path), _File)
    return Recipe(
        task=file.task,
        architecture=Architecture(model=file.architecture.model, settings=file.architecture.settings),
        hyperparameters=Hyperparameters(**file.params.model_dump()),
        training=TrainingSettings(**file.training.model_dump()),
        origin=file.model_dump(mode="json", exclude_defaults=True),
    )
