"""A picked configuration trained once more, on seeds of one's choosing, and kept as a model file
with its card.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import ConfigDict, Field, field_validator
from torch import nn

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
from tuner.errors import TunerError, UsageError
from tuner.export.best_config import BestConfig
from tuner.export.saved_model import SEED, card_path, describe, save_model
from tuner.files.plain import Count, Digest, Label, PlainTable, Prose, Strict, in_json
from tuner.files.toml_file import read_toml, validate
from tuner.models.frozen_part import count_parameters
from tuner.models.registry import cell_of
from tuner.spec.program import MODEL as PROGRAM
from tuner.spec.space import Configuration
from tuner.study.baselines import Scored, difference, in_words, share_in_words, worth
from tuner.training import EpochRecord, Evaluation, FitResult, evaluate, fit
from tuner.training.baselines import plain
from tuner.training.baselines.plain import Timed
from tuner.training.calibration import Calibration, calibrate
from tuner.training.engines.choose import what_auto_means
from tuner.training.ensemble import Ensemble, choose_weights
from tuner.training.evaluate import ForecastQuality, forecast_quality
from tuner.trial.run import git_revision, versions

# What a training needs of a configuration, from a study or from the TOML file it was written to.


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A configuration to train: network, hyperparameters,
    protocol; `origin` is the record it was taken from, `baselines` what its study knows of
    forecasts without a network.
    """

    task: str
    architecture: Architecture
    hyperparameters: Hyperparameters
    training: TrainingSettings
    origin: dict[str, Any]
    baselines: tuple[Scored, ...] = ()

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
            baselines=config.baselines,
        )


class _Provenance(Strict):
    """What of a configuration's origin is read again; the rest is carried along."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    data_hash: Digest | None = None


class _File(Strict):
    """What `tuner best --format toml` writes;
    beyond the first three, what is left out has its default.
    """

    task: Label
    params: Configuration
    architecture: Architecture
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
    worth: Prose | None = None
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
    known = file.baselines if "test_mql" in file.values else file.test_baselines
    return Recipe(
        task=file.task,
        architecture=file.architecture,
        hyperparameters=file.params.hyperparameters(file.training.loss),
        training=file.training,
        origin=file.model_dump(mode="json", exclude_defaults=True),
        baselines=tuple(Scored(name=name, test_mql=mql) for name, mql in (known or {}).items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One seed's training."""

    seed: int
    result: FitResult
    scores: Evaluation
    quality: ForecastQuality
    calibration: Calibration | None = None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaged:
    """What the mean of several forecasts comes to; `helps` where it is shown to be better, on the
    validation split, than the best of its members alone, which `sentence` says.
    """

    weights: Mapping[str, float]
    model: Ensemble
    scores: Evaluation
    quality: ForecastQuality
    calibration: Calibration | None
    helps: bool
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """What it is and how good, JSON-able."""
        forecasts = self.quality.as_dict()
        return {"weights": dict(self.weights), **_scores(self.scores), "forecasts": forecasts}


Kept = Trained | Averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Refitted:
    """What is kept, trained once more on all rows; `epochs` are those of each seed."""

    model: nn.Module
    prepared: PreparedData
    """With all rows, and the scaling that is theirs."""
    epochs: Mapping[int, int]

    def in_words(self) -> str:
        """A sentence, without what is known of its forecasts: nothing was left to score them on."""
        each = [f"seed {n} for {many} epoch{'s' * (many > 1)}" for n, many in self.epochs.items()]
        ends = " to ".join(self.prepared.training_ends)
        return (
            f"trained once more on all {self.prepared.training_rows[1]:,} rows, {ends}: "
            f"{', '.join(each) or 'no network'}; scores and shifts of intervals are of the model "
            "before that"
        )


def train_seeds(
    recipe: Recipe,
    data: DeviceData,
    seeds: Sequence[int],
    *,
    calibrated: bool = False,
    on_epoch: Callable[[int, EpochRecord], None] = lambda seed, record: None,  # noqa: ARG005
) -> Iterator[Trained | Failed]:
    """Train with each seed, one after the other, as they are asked for; `on_epoch` hears of every
    finished epoch. A seed that diverges or runs out of memory takes no other with it. Where
    `calibrated`, intervals are shifted to hold what they promise.

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
        yield _train(replace(config, seed=seed), data, on_epoch, calibrated=calibrated)


def _train(
    config: RunConfig,
    data: DeviceData,
    on_epoch: Callable[[int, EpochRecord], None],
    *,
    calibrated: bool,
) -> Trained | Failed:
    seed = config.seed
    result = fit(config, data, on_epoch=lambda record: on_epoch(seed, record))
    if not result.stopped_by.completed or result.model is None:
        return Failed(seed=seed, stopped_by=result.stopped_by.value, message=result.message)
    quality = forecast_quality(result.model, data)
    return Trained(
        seed=seed,
        result=result,
        scores=evaluate(result.model, data),
        quality=quality,
        calibration=calibrate(result.model, data, quality) if calibrated else None,
    )


def average(
    recipe: Recipe, data: DeviceData, trained: Sequence[Trained], *, calibrated: bool = False
) -> Averaged:
    """The mean of what the seeds' models and the plain baselines forecast, weighted by validation
    windows.
    """
    data = data.seeing(recipe.hyperparameters.input_size)
    members: dict[str, nn.Module] = {}
    for each in trained:
        assert each.result.model is not None, "a finished training has one"
        members[f"{SEED}{each.seed}"] = each.result.model
    members |= {name: make() for name, make in plain.baselines(data).items()}
    choice = choose_weights(members, data)
    apart = difference(choice.runs, choice.best_runs)
    helps = apart is not None and apart[0] > 0 and len(choice.weights) > 1
    parts = [f"{100 * share:.0f} % {in_words(name)}" for name, share in choice.weights.items()]
    sentence = (
        f"{'Ensemble kept' if helps else 'No ensemble kept, it is not shown to be better'}: "
        f"{' + '.join(parts)} against {in_words(choice.best)} alone, on the validation split: "
        f"MQL {fmean(choice.runs or choice.best_runs):.4g} against {fmean(choice.best_runs):.4g}"
        f"{share_in_words(apart)}"
    )
    if len(choice.weights) == 1:
        sentence = f"No ensemble kept: {in_words(choice.best)} alone is as good on validation"
    model = Ensemble([members[name] for name in choice.weights], [*choice.weights.values()])
    quality = forecast_quality(model, data)
    return Averaged(
        weights=choice.weights,
        model=model,
        scores=evaluate(model, data),
        quality=quality,
        calibration=calibrate(model, data, quality) if calibrated else None,
        helps=helps,
        sentence=sentence,
    )


def refit(
    recipe: Recipe,
    prepared: PreparedData,
    data: DeviceData,
    trained: Sequence[Trained],
    kept: Kept,
    on_epoch: Callable[[int, EpochRecord], None] = lambda seed, record: None,  # noqa: ARG005
) -> Refitted:
    """Train what is kept once more, on all rows: same configuration and seed, no early stopping,
    as many epochs as the first training's weights had. Epochs, not steps: the learning rate falls
    by epochs, and with as many steps each window is seen less often, which is worse after a late
    change (benchmarks/worth/refit.md).

    Args:
        recipe: of the first training.
        prepared: `prepare(..., whole=True)`.
        data: the same on its device.
        trained: the first trainings.
        kept: the one of them that is kept, or the mean of several.
        on_epoch: as of `train_seeds`.

    Raises:
        TunerError: a training ended without a model.
    """
    weights = kept.weights if isinstance(kept, Averaged) else {f"{SEED}{kept.seed}": 1.0}
    first = {f"{SEED}{each.seed}": each for each in trained}
    members: list[nn.Module] = []
    epochs: dict[int, int] = {}
    for place, name in enumerate(weights):
        if name not in first:
            assert isinstance(kept, Averaged), "one alone is of a seed"
            seen = data.seeing(recipe.hyperparameters.input_size)
            members.append(plain.made_again(kept.model.members[place], seen))
            continue
        seed, before, told = first[name].seed, first[name].result, recipe.training
        epochs[seed] = n = before.best_epoch if told.restore_best_weights else before.epochs
        told = told.but(max_epochs=n, validate_every=n, restore_best_weights=False)
        [again] = train_seeds(replace(recipe, training=told), data, [seed], on_epoch=on_epoch)
        if isinstance(again, Failed):
            raise TunerError(f"on all rows {again.in_words()}")
        assert again.result.model is not None, "a finished training has one"
        members.append(again.result.model)
    model = Ensemble(members, [*weights.values()]) if isinstance(kept, Averaged) else members[0]
    return Refitted(model=model, prepared=prepared, epochs=epochs)


def kept_of(trained: Sequence[Trained], averaged: Averaged | None) -> Kept:
    """The mean where that helps, else the best seed."""
    return averaged if averaged is not None and averaged.helps else best_of(trained)


def best_of(trained: Sequence[Trained]) -> Trained:
    """The one of the lowest validation loss: the test split has no say in which model is kept."""
    return min(trained, key=lambda each: each.result.best_val_loss)


def as_scored(baselines: Mapping[str, Timed], series: str | None) -> tuple[Scored, ...]:
    """What was scored here, as a study keeps it, by the task's objective `series`."""
    found = []
    for name, each in baselines.items():
        mqls = zip(("test_mql", "val_mql"), each.scores.of_series(series), strict=True)
        known: dict[str, Any] = {error: mql for error, mql in mqls if math.isfinite(mql)}
        found.append(Scored(name=name, **known, **in_json(each.scores, "test_runs", "val_runs")))
    return tuple(found)


def worth_of(
    kept: Kept, baselines: Mapping[str, Timed], series: str | None, of_study: Sequence[Scored] = ()
) -> str:
    """Whether the model is better on the test split than forecasts without a network, in a
    sentence; also than those `of_study` that are not among them. By the task's objective `series`;
    where it has none, by the mean over all forecasts.
    """
    scored = [*as_scored(baselines, series)]
    scored += [each for each in of_study if each.name not in baselines]
    mql, runs = kept.scores.of_series(series)[0], kept.scores.test_runs
    found = worth(mql, runs, scored, "this model")
    return "" if found is None else found.sentence


def save_trained(
    path: Path,
    recipe: Recipe,
    prepared: PreparedData,
    trained: Sequence[Trained],
    device: str,
    baselines: Mapping[str, Timed],
    failed: Sequence[Failed] = (),
    averaged: Averaged | None = None,
    refitted: Refitted | None = None,
) -> dict[str, Any]:
    """Write the best of `trained`, or the mean where that helps, to `path` with its card, what the
    `baselines` come to, and which seeds `failed`; the card. What was trained once more takes the
    place of its model.

    Raises:
        DataError: the disk does not take them.
    """
    best, kept = best_of(trained), kept_of(trained, averaged)
    model = best.result.model if isinstance(kept, Trained) else kept.model
    model = model if refitted is None else refitted.model
    assert model is not None, "a finished training has one"
    counted = count_parameters(model)
    same = recipe.data_hash == prepared.data_hash
    known = recipe.baselines if same else ()
    said = worth_of(kept, baselines, prepared.task.objective_series, known)
    card: dict[str, Any] = {"worth": said or None}
    seen = prepared if refitted is None else refitted.prepared
    card |= describe(seen, recipe.architecture, recipe.hyperparameters)
    card |= {
        "training": recipe.training.model_dump(mode="json"),
        "metrics": kept.as_dict(),
        "chosen": f"lowest validation loss of {len(trained)} seed{'s' if len(trained) > 1 else ''}",
        "ensemble": None if averaged is None else averaged.sentence,
        "refit": None if refitted is None else refitted.in_words(),
        "seeds": [each.as_dict() for each in trained],
        "failed_seeds": [each.as_dict() for each in failed],
        "baselines": {
            name: _scores(each.scores) | in_json(each, "fit_s", "forecast_s")
            for name, each in baselines.items()
        },
        "n_parameters": counted.trained,
        "n_frozen": counted.frozen,
        "backend": best.result.backend.value,
        "backend_fallback": best.result.backend_fallback or None,
        "cell": cell_of(recipe.architecture, recipe.hyperparameters),
        "device": device,
        "host": platform.node(),
        "versions": versions(),
        "git_revision": git_revision(),
        "configuration": recipe.origin,
        "found_on_this_data": same if recipe.data_hash else None,
    }
    if kept.calibration is not None:
        card["calibration"] = kept.calibration.as_dict()
        factors = prepared.scale / seen.scale  # a shift is of scaled values
        card["calibration"]["factors"] = factors.tolist() if refitted is not None else None
    if isinstance(kept, Averaged):
        members = [{"name": name, "weight": share} for name, share in kept.weights.items()]
        card |= {"members": members, "chosen": kept.sentence}
    save_model(path, model, card)
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
