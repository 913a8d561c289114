"""One configuration with where it comes from:
study, trial, data, seeds, versions, device, and whether it is verified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.config import (
    LIBRARY,
    Architecture,
    Hyperparameters,
    LossTerm,
    ModelShapes,
    Precision,
    TrainingSettings,
    Value,
    library_class,
    names_own_code,
    shapes_seen,
)
from tuner.data.task import shapes, task_of
from tuner.errors import UsageError
from tuner.files.plain import in_json
from tuner.models.of_neuralforecast.library_source import (
    QUANTILES_FIRST,
    constructor_arguments,
    lists_in,
    take_our_norm,
)
from tuner.models.readings import reading_of
from tuner.spec.definition import StudyDefinition
from tuner.study.baselines import Scored, Worth, worth

if TYPE_CHECKING:
    from torch import nn


# What cannot leave a study whose trials are a program: tuner has no network of it.


def refuse_program(definition: StudyDefinition, study: str, what: str) -> None:
    """Raises UsageError where the study trains a program; `what` was asked for."""
    program = definition.program
    if program is not None:
        raise UsageError(
            f"{what}: study {study!r} trains a program of yours ({program.in_words()}), and its "
            "network is there alone; take the hyperparameters with --format toml or json, and give "
            "them to it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BestConfig:
    """One configuration from a study, with where it comes from.

    `values` are those of its one trial: seconds to convergence, and test MQL in original units. Of
    a configuration with several trials they are medians, each for itself; `trial` is the first of
    them, `provenance` says which they are (`runs`, `trials`), and its `seeds` are those of all.
    `expected` is what all runs of the study make of it, None where that was not asked for or they
    are too few. `verified` holds fresh-seed figures, None until the configuration was verified: a
    single trial may have had a lucky seed; `unverified` says why runs on fresh seeds give none.
    `chosen_on` says which of the three it was chosen on (`single`, `expected` or `verified`), and
    is None for a trial by its number. `recommendation` says what a configuration of the pick
    `same-quality` was held against, and how surely it is as good. `confirmed` is what its study's
    last confirmation found of this trial, None where that was of another one or there was none.
    `why` is a sentence of all this, and `notes` is what else to know. `source` is where a task file
    says the data is and in what dialect it is written; empty where no file was named. `baselines`
    are forecasts without a network, with their scores; `runs` the MQL of runs of windows, by the
    study's objective, which say how surely it is better than these.

    >>> from tuner import load_best
    >>> best = load_best(study="quick", pick="knee", storage="sqlite:///quick.db")
    >>> best.build_model().training
    True
    """

    variant: str
    task: str
    study: str
    trial: int
    pick: str
    params: dict[str, Value]
    values: dict[str, float]
    verified: dict[str, Any] | None
    provenance: dict[str, Any]
    definition: StudyDefinition
    chosen_on: str | None = None
    why: str = ""
    unverified: str = ""
    expected: dict[str, float] | None = None
    recommendation: dict[str, Any] | None = None
    confirmed: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    baselines: tuple[Scored, ...] = ()
    runs: tuple[float, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)
    untrusted: str = ""
    """The exported study that names code of its own, which must not run unasked: its file, or the
    study that was imported from it; else empty."""
    no_code: str = ""
    """Why the study's class cannot run on this host; else empty."""

    def refuse_untrusted(self) -> None:
        """Raises UsageError where to build the network would run code that only an exported study
        named, or other code than the study's.
        """
        refuse_program(self.definition, self.study, "a network")
        if self.untrusted:
            kinds = {self.architecture.model: "the network"}
            each_one = [f"{kinds.get(it, 'the term')} {it}" for it in self.definition.own_code]
            named = " and ".join(each_one)
            raise UsageError(
                f"{self.untrusted} names {named}, whose code would run here; read it, "
                "then say --trust, or load_best(..., trust=True)"
            )
        if self.no_code:
            raise UsageError(self.no_code)

    @property
    def architecture(self) -> Architecture:
        """The network as it is to be built: its own hyperparameters are settings now."""
        of_study = self.definition.architecture
        settings = {**of_study.settings, **self.hyperparameters.of_network}
        return Architecture(model=of_study.model, settings=settings)

    @property
    def hyperparameters(self) -> Hyperparameters:
        return self.definition.hyperparameters(self.params)

    @property
    def worth(self) -> str:
        """Whether it is better than forecasts without a network, in a sentence; empty where none
        was scored.
        """
        found = self.against_baselines()
        return "" if found is None else found.sentence

    def against_baselines(self, whose: str = "this configuration") -> Worth | None:
        """The same with what follows from it; None where none was scored."""
        objective = self.definition.objectives[1]
        mql = self.values[objective]
        if self.verified is not None and objective in self.verified:
            mql = self.verified[objective]["median"]
        return worth(mql, self.runs, self.baselines, whose, error=objective)

    def _by(self, error: str) -> dict[str, float]:
        """MQL of each baseline that was run, the lowest first."""
        known = [(each.name, mql) for each in self.baselines if (mql := each.by(error)) is not None]
        return dict(sorted(known, key=lambda pair: pair[1]))

    @property
    def accumulate(self) -> int:
        """Batches that make up one update, searched or fixed."""
        return self.hyperparameters.accumulate or self.training.accumulate

    @property
    def added_term(self) -> LossTerm | None:
        """What its training adds to the quantile loss; None also where its weight is 0."""
        loss = self.training.loss
        return loss if loss is not None and loss.weight_in(self.hyperparameters.own) else None

    @property
    def training(self) -> TrainingSettings:
        """The protocol's fixed settings, as the study had them."""
        return self.definition.training

    @property
    def shapes(self) -> ModelShapes:
        """The sizes of the study's task, as this configuration sees it."""
        return shapes_seen(shapes(task_of(self.definition.task)), self.hyperparameters)

    def build_model(self, shapes: ModelShapes | None = None) -> nn.Module:
        """A new, untrained network of this configuration, for the study's task or for `shapes`.

        It maps `(past (B, L, C+P+F), future (B, T, F) or None, static (B, S) or None)` to `(B, T,
        C, Q)`.

        Raises:
            UsageError: the network is a class that only an exported study names: `load_best(...,
                trust=True)`.
        """
        self.refuse_untrusted()
        from tuner.models.registry import build_model

        return build_model(self.architecture, shapes or self.shapes, self.hyperparameters)

    def to_neuralforecast(
        self, *, h: int | None = None, n_series: int | None = None, **changes: Any
    ) -> Any:
        """A new, untrained neuralforecast model of this configuration: the same network, set up to
        train like it.

        Args:
            h: horizon; the task's by default.
            n_series: series of the panel; the task's number of target columns by default.
            changes: any argument of the model class, such as `futr_exog_list`, `loss` or
                `max_steps`.

        Which hyperparameter becomes which argument: docs/use-the-result.md.

        Raises:
            UsageError: the network is a class that only an exported study names: `load_best(...,
                trust=True)`.
        """
        self.refuse_untrusted()
        import torch

        given = library_arguments(self, h=h, n_series=n_series)
        given |= {
            "optimizer": torch.optim.AdamW,
            "loss": _loss(self.architecture)(quantiles=list(self.definition.task["quantiles"])),
        }
        if "lr_scheduler_kwargs" in given:
            given["lr_scheduler"] = torch.optim.lr_scheduler.ExponentialLR
        if "loss" in changes:
            given["gradient_clip_val"] = self.training.gradient_clip
        return _class_of(self.architecture)(**given | changes)

    def as_dict(self) -> dict[str, Any]:
        """The JSON document of `tuner best --format json`."""
        by_test = self.definition.objectives[1] == "test_mql"
        beside = {} if by_test else self._by("test_mql")
        return {
            **in_json(self, "variant", "task", "study", "trial", "pick", "chosen_on", "why"),
            **in_json(self, "params", "values", "expected", "verified", "confirmed"),
            "recommendation": self.recommendation,
            "worth": self.worth or None,
            "baselines": self._by(self.definition.objectives[1]) or None,
            **({"test_baselines": beside} if beside else {}),
            "architecture": in_json(self.definition.architecture, "model", "settings"),
            "training": self.training.protocol(),
            "provenance": self.provenance,
        }


# A configuration as a neuralforecast model: the same network, set up to train like the study's.


def _class_of(architecture: Architecture) -> Any:
    of_library = library_class(architecture.model)
    if of_library is not None:
        from tuner.models.of_neuralforecast.build import find_class

        return find_class(of_library)
    from tuner.integrations.neuralforecast import model_class

    return model_class(architecture)


def _loss(architecture: Architecture) -> Any:
    if library_class(architecture.model) in QUANTILES_FIRST:
        from tuner.integrations.neuralforecast import QuantilesFirstMQLoss

        return QuantilesFirstMQLoss
    from neuralforecast.losses.pytorch import MQLoss

    return MQLoss


def library_arguments(
    config: BestConfig, *, h: int | None = None, n_series: int | None = None
) -> dict[str, Any]:
    """The plain arguments of the model class.

    neuralforecast counts steps where a study counts epochs, and averages its quantile loss over the
    levels where the protocol sums it: the number of steps, the decay of the learning rate and the
    clipping are converted. It trains until the trial's best epoch; set `early_stop_patience_steps`
    and fit with a `val_size` to stop early instead.

    A model of neuralforecast's own is given its hyperparameters as the study has them. The study's
    reversible norm around it becomes the library's scaling of each window.

    Accumulated batches become one larger batch, which has the same gradient: Lightning updates at
    the end of each of its epochs, which are single batches here.

    Raises:
        UsageError: the study checkpoints activations, or adds a term to its loss.
    """
    refuse_untrainable(config, "neuralforecast")
    task, settings = config.definition.task, dict(config.architecture.settings)
    hyperparameters, training = config.hyperparameters, config.training
    own = names_own_code(config.architecture.model)
    given: dict[str, Any] = {
        "h": h or task["horizon"],
        "input_size": config.shapes.input_size,
        "n_series": n_series or len(task["target_columns"]),
        # Left out, an own class that takes none would be given the usual ones.
        **(dict.fromkeys(("hidden_size", "dropout")) if own else {}),
        **hyperparameters.sizes,
        "learning_rate": hyperparameters.learning_rate,
        "optimizer_kwargs": {"weight_decay": hyperparameters.weight_decay},
        "windows_batch_size": hyperparameters.batch_size * config.accumulate,
        "gradient_clip_val": training.gradient_clip / len(task["quantiles"]),
        "random_seed": config.provenance["seeds"][0],
    }
    of_library = library_class(config.architecture.model)
    if of_library is not None:
        given = of_class(of_library, given, settings)
    elif ":" not in config.architecture.model:
        given |= settings
    windows = config.provenance["training_windows"]
    if windows:
        steps = math.ceil(windows / (hyperparameters.batch_size * config.accumulate))
        epochs = config.provenance["best_epoch"] or config.provenance["epochs"] or 1
        given |= {
            "max_steps": steps * epochs,
            "val_check_steps": steps * training.validate_every,
            "lr_scheduler_kwargs": {"gamma": training.learning_rate_decay ** (1 / steps)},
        }
    if training.precision.half:
        given["precision"] = "16-mixed" if training.precision is Precision.FP16 else "bf16-mixed"
    return given


def refuse_untrainable(config: BestConfig, library: str) -> None:
    """Raises UsageError where a study checkpoints activations, keeps its last weights, adds a term
    to its loss or reads its variant in another way: a library's training does not.
    """
    if changed := reading_of(config.architecture)[0].changed:
        raise UsageError(
            f"the study's network is another reading of its variant, {', '.join(changed)}, which "
            f"{library}'s class does not build; use --format python"
        )
    if config.added_term is not None:
        raise UsageError(
            f"the study's training loss has the term {config.added_term.in_words()}, which "
            f"{library} does not train with; use --format python"
        )
    if config.training.checkpoint_activations:
        raise UsageError(
            f"the study checkpoints activations, which {library} does not; use --format python"
        )
    if not config.training.restore_best_weights:
        raise UsageError(
            "the study tests the last epoch's weights, where the script keeps the best one's; use "
            "--format python"
        )


def of_class(name: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class of the library's own: `given` and the study's own hyperparameters.

    A univariate class counts windows of one series, a study windows of all targets.
    """
    taken = constructor_arguments(name)
    own = lists_in(f"{LIBRARY}:{name}", settings)
    revin = take_our_norm(f"{LIBRARY}:{name}", taken, own)
    found = dict(given)
    if "n_series" not in taken:
        found["windows_batch_size"] *= found.pop("n_series")
    return found | own | {"scaler_type": "standard" if revin else "identity"}
