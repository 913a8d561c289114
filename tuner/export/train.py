"""A picked configuration trained once more, on seeds of one's choosing, and kept as a model file
with its card.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from tuner.config import (
    EXECUTED,
    Architecture,
    Hyperparameters,
    RunConfig,
    TrainingSettings,
    own_code,
)
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.export.saved_model import card_path, describe, save_model
from tuner.files.plain import Count, Digest, Label, PlainTable, Prose, Strict, in_json
from tuner.files.toml_file import read_toml, validate
from tuner.models.registry import cell_of
from tuner.spec.definition import StoredNetwork
from tuner.spec.program import MODEL as PROGRAM
from tuner.spec.space import Configuration
from tuner.study.results import loses
from tuner.training import EpochRecord, Evaluation, FitResult, evaluate, fit
from tuner.training.engines.choose import what_auto_means
from tuner.training.evaluate import ForecastQuality, forecast_quality
from tuner.trial.run import git_revision, versions

# What a training needs of a configuration, from a study or from the TOML file it was written to.


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
        return own_code(self.architecture.model, *([] if loss is None else [loss.term]))

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
    architecture: StoredNetwork
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
        architecture=file.architecture.architecture(),
        hyperparameters=file.params.beside(file.architecture.settings, file.training.loss),
        training=file.training,
        origin=file.model_dump(mode="json", exclude_defaults=True),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One seed's training."""

    seed: int
    result: FitResult
    scores: Evaluation
    quality: ForecastQuality

    def as_dict(self) -> dict[str, Any]:
        """How it went, JSON-able."""
        r = self.result
        return {
            "seed": self.seed,
            "stopped_by": r.stopped_by.value,
            **in_json(r, "epochs", "best_epoch", "wall_clock_s", val_loss="best_val_loss"),
            **_scores(self.scores),
            "forecasts": self.quality.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A seed whose training left no model."""

    seed: int
    stopped_by: str
    message: str

    def as_dict(self) -> dict[str, Any]:
        """What became of it, JSON-able."""
        return asdict(self)

    def in_words(self) -> str:
        """A line for the person who asked for it."""
        return (
            f"the training with seed {self.seed} ended without a model: {self.stopped_by} "
            f"({self.message})"
        )


def train_seeds(
    recipe: Recipe,
    data: DeviceData,
    seeds: Sequence[int],
    *,
    on_epoch: Callable[[int, EpochRecord], None] = lambda seed, record: None,  # noqa: ARG005
) -> Iterator[Trained | Failed]:
    """Train with each seed, one after the other, as they are asked for; `on_epoch` hears of every
    finished epoch. A seed that diverges or runs out of memory takes no other with it.

    Raises:
        UsageError: settings or an architecture with which no training is possible.
    """
    data = data.seeing(recipe.hyperparameters.input_size)
    config = RunConfig(
        architecture=recipe.architecture,
        hyperparameters=recipe.hyperparameters,
        training=recipe.training,
        seed=seeds[0],
    )
    choice = what_auto_means(config, data)
    if choice is not None:
        config = replace(config, training=config.training.but(backend=choice.backend))
    for seed in seeds:
        yield _train(replace(config, seed=seed), data, on_epoch)


def _train(
    config: RunConfig, data: DeviceData, on_epoch: Callable[[int, EpochRecord], None]
) -> Trained | Failed:
    seed = config.seed
    result = fit(config, data, on_epoch=lambda record: on_epoch(seed, record))
    if not result.stopped_by.completed or result.model is None:
        return Failed(seed=seed, stopped_by=result.stopped_by.value, message=result.message)
    return Trained(
        seed=seed,
        result=result,
        scores=evaluate(result.model, data),
        quality=forecast_quality(result.model, data),
    )


def best_of(trained: Sequence[Trained]) -> Trained:
    """The one of the lowest validation loss: the test split has no say in which model is kept."""
    return min(trained, key=lambda each: each.result.best_val_loss)


def loses_to(kept: Trained, baselines: Mapping[str, Evaluation], series: str | None) -> str:
    """That a forecast without a network is as good on the test split, in a sentence; empty where
    none is. By the task's objective `series`; where it has none, by the mean over all forecasts.
    """
    known = {name: each.of_series(series)[0] for name, each in baselines.items()}
    return loses(kept.scores.of_series(series)[0], known, "this model")


def save_trained(
    path: Path,
    recipe: Recipe,
    prepared: PreparedData,
    trained: Sequence[Trained],
    device: str,
    baselines: Mapping[str, Evaluation],
    failed: Sequence[Failed] = (),
) -> dict[str, Any]:
    """Write the best of `trained` to `path` with its card, what the `baselines` come to, and which
    seeds `failed`; the card.

    Raises:
        DataError: the disk does not take them.
    """
    kept = best_of(trained)
    assert kept.result.model is not None, "a finished training has one"
    card = describe(prepared, recipe.architecture, recipe.hyperparameters) | {
        "training": recipe.training.model_dump(mode="json"),
        "metrics": kept.as_dict(),
        "chosen": f"lowest validation loss of {len(trained)} seed{'s' if len(trained) > 1 else ''}",
        "seeds": [each.as_dict() for each in trained],
        "failed_seeds": [each.as_dict() for each in failed],
        "baselines": {name: _scores(each) for name, each in baselines.items()},
        "loses": loses_to(kept, baselines, prepared.task.objective_series) or None,
        "n_parameters": kept.result.n_parameters,
        "backend": kept.result.backend.value,
        "backend_fallback": kept.result.backend_fallback or None,
        "cell": cell_of(recipe.architecture, recipe.hyperparameters),
        "device": device,
        "host": platform.node(),
        "versions": versions(),
        "git_revision": git_revision(),
        "configuration": recipe.origin,
        "found_on_this_data": recipe.data_hash == prepared.data_hash if recipe.data_hash else None,
    }
    save_model(path, kept.result.model, card)
    return card


def files_of(path: Path) -> list[str]:
    """What `save_trained` writes."""
    return [str(path), str(card_path(path))]


def _scores(scores: Evaluation) -> dict[str, Any]:
    """MQL by series, over all, and by target column where there are several."""
    found = in_json(scores, "test_mql", "test_mql_mean", "val_mql", "val_mql_mean")
    if scores.test_columns:
        found |= in_json(scores, test_mql_of="test_columns", val_mql_of="val_columns")
    return found
