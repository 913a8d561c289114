"""A picked configuration trained once more, on seeds of one's choosing, and kept as a model file
with its card.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tuner.config import RunConfig
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData
from tuner.export.recipe import Recipe
from tuner.export.saved_model import card_path, describe, save_model
from tuner.models.registry import cell_of
from tuner.study.baselines import loses
from tuner.training import EpochRecord, Evaluation, FitResult, evaluate, fit
from tuner.training.engines.measure import what_auto_means
from tuner.training.forecast_quality import ForecastQuality, forecast_quality
from tuner.training.naive_forecasts import BaselineScore
from tuner.trial.provenance import git_revision, versions


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
            "epochs": r.epochs,
            "best_epoch": r.best_epoch,
            "val_loss": r.best_val_loss,
            "wall_clock_s": r.wall_clock_s,
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


def loses_to(kept: Trained, baselines: Sequence[BaselineScore], series: str | None) -> str:
    """That a forecast without a network is as good on the test split, in a sentence; empty where
    none is. By the task's objective `series`; where it has none, by the mean over all forecasts.
    """
    known = {each.name: each.evaluation.of_series(series)[0] for each in baselines}
    return loses(kept.scores.of_series(series)[0], known, "this model")


def save_trained(
    path: Path,
    recipe: Recipe,
    prepared: PreparedData,
    trained: Sequence[Trained],
    device: str,
    baselines: Sequence[BaselineScore] = (),
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
        "baselines": {each.name: _scores(each.evaluation) for each in baselines},
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
    found: dict[str, Any] = {
        "test_mql": dict(scores.test_mql),
        "test_mql_mean": scores.test_mql_mean,
        "val_mql": dict(scores.val_mql),
        "val_mql_mean": scores.val_mql_mean,
    }
    if scores.test_columns:
        found |= {"test_mql_of": dict(scores.test_columns), "val_mql_of": dict(scores.val_columns)}
    return found
