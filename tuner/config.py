"""The frozen, typed records that travel through the program.
Nothing here imports anything heavy.
"""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from tuner.files.plain import Label, PlainTable
from tuner.settings import Flag, Settings

# What one epoch of a training came to.


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One finished epoch: losses per window on scaled values, and the clock after validation."""

    epoch: int
    """Counted from 1."""
    train_loss: float
    """Mean over the windows trained on, each under the weights and the dropout it met."""
    val_loss: float | None
    """Exact mean over all validation windows, under the weights at the end of the epoch; None where
    the epoch was not validated."""
    learning_rate: float
    """What this epoch was trained with."""
    elapsed_s: float
    """`wall_clock_s` so far."""
    gpu_busy: float | None = None
    """The share of the time so far in which the GPU had work; known of who trains, to be told."""


# How code that is not tuner's is named: as text, before anything is imported.


LIBRARY = "neuralforecast"
"""Before a colon: the library whose model classes are networks here, `neuralforecast:TCN`."""

_MODULE = re.compile(r"[\w.]+|.+\.py")


def library_class(model: str) -> str | None:
    """The name of neuralforecast's class, where a model is named as `neuralforecast:NAME`."""
    library, colon, name = model.partition(":")
    return name if colon and library == LIBRARY else None


def names_own_code(model: str) -> bool:
    """Whether a model is a class of the user's own, neither built in nor neuralforecast's."""
    return ":" in model and library_class(model) is None


def own_code(*references: str) -> tuple[str, ...]:
    """Those of the import strings that name code of the user's own."""
    return tuple(each for each in references if names_own_code(each))


def names_file(reference: str) -> bool:
    """Whether an import string names a file, `path/to/file.py:name`."""
    return reference.rpartition(":")[0].endswith(".py")


def is_name(text: str) -> bool:
    """Whether Python takes it for a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def _reference(model: str) -> str:
    """A name, or an import string whose class can be written into a script as it is."""
    location, colon, name = model.rpartition(":")
    if colon and not (_MODULE.fullmatch(location) and is_name(name)):
        raise ValueError(
            f"{model!r} is no import string; expected package.module:Class or path/to/file.py:Class"
        )
    return model


NetworkName = Annotated[Label, AfterValidator(_reference)]
"""A built-in network, a model of neuralforecast, or a class of the user's own."""


# What a user adds to the training loss, as a record. Nothing here is imported or called.


LARGEST_WEIGHT = 1e30


def _own(term: str) -> str:
    if not names_own_code(term):
        raise ValueError(
            f"{term!r} is no function or class of yours; expected FILE.py:name or "
            "package.module:name"
        )
    return term


def _weight(weight: float | str) -> float | str:
    if not isinstance(weight, str) and not 0 <= weight <= LARGEST_WEIGHT:
        raise ValueError(f"must be 0 or more, not {weight:g}; or the name of a hyperparameter")
    return weight


class LossTerm(Settings):
    """training loss = quantile loss + `weight` x `term`; whatever is judged is the former alone."""

    term: Annotated[NetworkName, AfterValidator(_own)]
    """`FILE.py:name` or `package.module:name`, of a function or a class."""
    weight: Annotated[float | Label, AfterValidator(_weight)]
    """0 or more, or the name of the hyperparameter that it is."""

    @property
    def hyperparameter(self) -> str | None:
        """The one that the weight is; None where it is a number."""
        return self.weight if isinstance(self.weight, str) else None

    def weight_in(self, own: Mapping[str, float | int | str | bool]) -> float:
        """The weight in a configuration with these hyperparameters of its own.

        Raises:
            KeyError: the weight is none of them.
        """
        return float(own[self.weight] if isinstance(self.weight, str) else self.weight)

    def in_words(self) -> str:
        """Without the folder, e.g. `lambda_physics x physics.py:continuity`."""
        return f"{self.weight} x {self.term.rpartition('/')[2]}"


# The sizes that a network is built for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShapes:
    """Sizes a task asks of a model.

    Legend used in every shape comment: B batch, L input_size, T horizon, C n_targets, P n_past
    (covariates known only up to now), F n_future (covariates known over the horizon too), S
    n_static, Q n_quantiles, H hidden size.

    >>> ModelShapes(
    ...     input_size=48, horizon=24, n_targets=3, n_past=0, n_future=0, n_static=0, n_quantiles=5
    ... ).horizon
    24
    """

    input_size: int
    horizon: int
    n_targets: int
    n_past: int
    n_future: int
    n_static: int
    n_quantiles: int
    positions: tuple[tuple[float, float], ...] = ()
    """Where each target is, in one unit of length; empty where the task does not say."""

    def sizes(self) -> dict[str, int]:
        """The numbers alone, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "positions"}


OBJECTIVES = ("wall_clock_s", "test_mql")
"""The two objectives of every study, both minimised, in this order."""

MANY = 1_000_000
"""More than anybody means by a number of trials, epochs or seeds, which every database can hold."""
MOST_SEARCHES = 100
"""Of one variant, in one group."""
MOST_ACCUMULATED = 1024
"""Batches of one update: all of them are in one capture."""
MOST_TOGETHER = 64
"""Devices of one trial, which are all of one host."""


class StopReason(StrEnum):
    """Why a training ended. The outcome is data: only misuse raises."""

    CONVERGED = "converged"
    EPOCH_LIMIT = "epoch_limit"
    TIME_LIMIT = "time_limit"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    ERROR = "error"
    INTERRUPTED = "interrupted"

    @property
    def completed(self) -> bool:
        """True when the training has objective values
        (its clock is censored unless it converged).
        """
        return self in (StopReason.CONVERGED, StopReason.EPOCH_LIMIT, StopReason.TIME_LIMIT)


class Backend(StrEnum):
    """How the same mathematics is executed. What `auto` came to is recorded with the trial."""

    AUTO = "auto"
    EAGER = "eager"
    GRAPH = "graph"
    COMPILE = "compile"
    TRITON = "triton"


class Precision(StrEnum):
    """Arithmetic of the matrix products."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"
    """With a scaled loss, as its small gradients would be 0 otherwise."""

    @property
    def half(self) -> bool:
        """Whether the forward pass is in 16 bits, the weights still in fp32."""
        return self in (Precision.BF16, Precision.FP16)


class CompileMode(StrEnum):
    """How hard torch.compile tries, by torch's names. The whole step is captured as one CUDA graph
    in each of them.
    """

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"
    """As `default`: it stands for CUDA graphs, and a graph in a graph cannot be."""
    MAX_AUTOTUNE = "max-autotune"
    """Times several kernels for each product, keeps the fastest; the first time takes minutes."""


SamplerName = Literal["auto", "kg", "gp", "tpe", "nsga2", "random", "qmc"]
"""Who chooses the next configuration; `search/sampler.py` says how each is made."""

SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
OWN_SAMPLER = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""`module:Class`: a sampler of Optuna's kind, of an installed package."""


class MqlSplit(StrEnum):
    """Whose MQL is the second objective of a study."""

    TEST = "test"
    VAL = "val"
    ORIGINS = "origins"
    """The test split but for its last block, which only a confirmation opens."""


class Choice(StrEnum):
    """Which front configurations are chosen from."""

    FRONT = "front"
    EXPECTED = "expected"
    RECOMMENDED = "recommended"
    """No front: what may be what is recommended, in rounds."""


class Values(StrEnum):
    """Which values say how fast and how good a configuration is."""

    SINGLE = "single"
    """Of its one run in the search; the medians where it has several."""
    EXPECTED = "expected"
    """By the model of all runs of the study."""
    VERIFIED = "verified"
    """Medians over fresh seeds; of what was verified alone."""


class Objective(StrEnum):
    """What the error of a forecast is measured in."""

    MQL = "mql"
    """The units of the data: a column of large values counts more."""
    SCALED = "scaled"
    """Of each series and column, its mean change from one training row to the next: all columns
    count alike."""


Value = float | int | str | bool
"""Of a hyperparameter."""

BUILT_IN = ("learning_rate", "weight_decay", "dropout", "hidden_size", "batch_size")
"""The hyperparameters that tuner itself knows, in the order of tables."""


OF_THE_TASK = ("input_size",)
"""Hyperparameters of the user's that change what is forecast from: no network is built with one."""

OF_TRAINING = ("accumulate",)
"""Those that change how it is trained, in place of a setting of the same name: no network is built
with one, either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """One configuration of the search space, in the values training uses (never encoded).

    >>> Hyperparameters(learning_rate=1e-3, weight_decay=0.0, batch_size=256).batch_size
    256
    """

    learning_rate: float
    weight_decay: float
    batch_size: int
    dropout: float | None = None
    """None where the network takes none, as with `hidden_size`."""
    hidden_size: int | None = None
    own: Mapping[str, Value] = field(default_factory=dict, hash=False)
    """Those of the network's own, by their names."""
    of_program: bool = False
    """Whether they are a program's: then all of them are in `own`, and the fields hold nothing."""
    loss_weight: str | None = field(default=None, compare=False)
    """Which of `own` weighs the user's term in the training loss, and is no network's."""

    def as_dict(self) -> dict[str, Value]:
        """All of them by name, the built-in ones first."""
        if self.of_program:
            return dict(self.own)
        found: dict[str, Value] = {}
        for name in BUILT_IN:
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        return found | dict(sorted(self.own.items()))

    @property
    def of_network(self) -> dict[str, Value]:
        """Of its own hyperparameters, those that the network is built with."""
        apart = (*OF_THE_TASK, *OF_TRAINING, self.loss_weight)
        return {name: value for name, value in self.own.items() if name not in apart}

    @property
    def sizes(self) -> dict[str, Value]:
        """Of `hidden_size` and `dropout`, those that it has: a network is built with these, too."""
        both = {"hidden_size": self.hidden_size, "dropout": self.dropout}
        return {name: value for name, value in both.items() if value is not None}

    @property
    def input_size(self) -> int | None:
        """Rows that the network sees of each window; None: as many as the task says."""
        found = self.own.get("input_size")
        return None if found is None else int(found)

    @property
    def accumulate(self) -> int | None:
        """Batches that make up one update; None: as many as the settings of training say."""
        found = None if self.of_program else self.own.get("accumulate")
        return None if found is None else int(found)

    @staticmethod
    def of(params: Mapping[str, Value], *, loss: LossTerm | None = None) -> Hyperparameters:
        """The typed record of a trial's true values; `loss` is what its training adds to the loss.

        Raises:
            KeyError: no learning rate, weight decay or batch size is among them.
        """
        dropout, hidden_size = params.get("dropout"), params.get("hidden_size")
        return Hyperparameters(
            learning_rate=float(params["learning_rate"]),
            weight_decay=float(params["weight_decay"]),
            batch_size=int(params["batch_size"]),
            dropout=None if dropout is None else float(dropout),
            hidden_size=None if hidden_size is None else int(hidden_size),
            own={name: value for name, value in params.items() if name not in BUILT_IN},
            loss_weight=None if loss is None else loss.hyperparameter,
        )

    @staticmethod
    def for_program(params: Mapping[str, Value]) -> Hyperparameters:
        """Those of a program: whatever it has, and nothing that it must have."""
        built_in = {name: params[name] for name in BUILT_IN if name in params}
        return Hyperparameters(
            learning_rate=0.0,
            weight_decay=0.0,
            batch_size=0,
            own=built_in | dict(sorted(params.items())),
            of_program=True,
        )


def shapes_seen(shapes: ModelShapes, hyperparameters: Hyperparameters) -> ModelShapes:
    """The sizes of a task as a configuration sees it: maybe less of each window's past."""
    return dataclasses.replace(shapes, input_size=hyperparameters.input_size or shapes.input_size)


def _arguments(settings: Any) -> Any:
    for name in settings if isinstance(settings, dict) else ():
        if not (isinstance(name, str) and is_name(name)):
            raise ValueError(f"{name!r} is no argument of a network; expected a Python name")
    return settings


NetworkSettings = Annotated[PlainTable, BeforeValidator(_arguments)]
"""The fixed arguments of a network."""


class Architecture(Settings):
    """Which network: a built-in name, or `package.module:Class`
    of the user's own, with its fixed settings.

    >>> Architecture(model="rmsnorm", settings={"n_blocks": 3}).model
    'rmsnorm'
    """

    model: NetworkName
    settings: NetworkSettings = Field(default_factory=dict)


SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", re.IGNORECASE)


def _bytes(value: Any) -> Any:
    """`2g` as a number of bytes."""
    if not isinstance(value, str):
        return value
    found = SIZE.fullmatch(value)
    if found is None:
        raise ValueError("a number of bytes is expected, such as '2g' or '500m'")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))


class TrainingSettings(Settings):
    """The protocol's fixed settings (the reference job's values are the defaults): the table
    `[training]` of a study file, part of what a study is, and what `fit` goes by.

    A setting is declared here, with its bounds and, where a launch may say it, its flag.

    >>> TrainingSettings(max_epochs=50).patience
    10
    """

    first = (
        "max_epochs",
        "patience",
        "min_delta",
        "gradient_clip",
        "learning_rate_decay",
        "time_limit_s",
        "precision",
        "backend",
    )

    max_epochs: Annotated[
        int,
        Field(gt=0, le=MANY),
        Flag(
            "--max-epochs",
            "Epoch limit (the variant's: 200); a higher one goes on.",
            "N",
        ),
    ] = 200
    patience: Annotated[
        int,
        Field(gt=0, le=MANY, description="Epochs without a better validation loss that end it."),
    ] = 10
    min_delta: Annotated[
        float,
        Field(ge=0, description="By how much a validation loss has to be lower to be better."),
    ] = 1e-5
    gradient_clip: Annotated[float, Field(gt=0, description="The largest norm of a gradient.")] = (
        1.0
    )
    learning_rate_decay: Annotated[
        float, Field(gt=0, le=1, description="What the learning rate is multiplied by, an epoch.")
    ] = 0.999
    time_limit_s: Annotated[
        float | None, Field(gt=0, description="Seconds of its clock after which it is cut off.")
    ] = None
    precision: Annotated[
        Precision, Flag("--precision", "Arithmetic of the matrix products (fp32).")
    ] = Precision.FP32
    backend: Annotated[
        Backend, Flag("--backend", "auto, eager, graph, compile or triton (auto).", "NAME")
    ] = Backend.AUTO
    accumulate: Annotated[
        int,
        Field(gt=0, le=MOST_ACCUMULATED, description="Batches whose gradients make up one update."),
        Flag("accumulate"),
    ] = 1
    """Batches whose gradients make up one update: a mean over all their windows."""
    checkpoint_activations: Annotated[
        bool,
        Field(
            strict=True,
            description="Compute the network's blocks again for the backward pass: less memory, "
            "more time, the same bits.",
        ),
        Flag("checkpoint_activations"),
    ] = False
    """Keep the inputs of the network's blocks only, and compute the rest again backward."""
    compile_mode: Annotated[
        CompileMode,
        Field(description="How hard --backend compile tries, on a GPU."),
        Flag("compile_mode"),
    ] = CompileMode.DEFAULT
    """With the backend `compile` on a GPU, and only there."""
    validate_every: Annotated[
        int,
        Field(gt=0, le=MANY, description="Epochs from one validation to the next."),
        Flag("validate_every"),
    ] = 1
    """Epochs from one validation to the next; after the last one there always is one."""
    gpus_per_trial: Annotated[
        int,
        Field(gt=0, le=MOST_TOGETHER, description="Devices that train one trial together."),
        Flag("gpus_per_trial"),
    ] = 1
    """Devices that train one trial together: each takes its part of every batch."""
    restore_best_weights: Annotated[
        bool,
        Field(strict=True, description="Test the best epoch's weights; else the last one's."),
    ] = True
    data_memory: Annotated[
        int | None,
        Field(
            gt=0,
            description="Bytes of the device for the data's rows, such as '2g'; beyond them they "
            "are streamed.",
        ),
        BeforeValidator(_bytes),
        Flag("data_memory"),
    ] = None
    """None: half of what a GPU has free."""
    loss: Annotated[
        LossTerm | None, Field(description="A term of your own in the training loss.")
    ] = None

    def protocol(self) -> dict[str, Any]:
        """The same of what decides what a training computes, and in how much memory; the others say
        how it is executed.
        """
        return {name: value for name, value in self.as_dict().items() if name not in EXECUTED}


EXECUTED = ("backend", "compile_mode", "data_memory", "time_limit_s", "gpus_per_trial")
"""The settings that say how a training is executed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything one training needs beside the data and the device.

    >>> chosen = Hyperparameters(learning_rate=1e-3, weight_decay=0.0, batch_size=256)
    >>> RunConfig(architecture=Architecture(model="rmsnorm"), hyperparameters=chosen, seed=7).seed
    7
    """

    architecture: Architecture
    hyperparameters: Hyperparameters
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0

    def __post_init__(self) -> None:
        loss, given = self.training.loss, self.hyperparameters
        if loss is not None and given.loss_weight is None:  # a network is built with the others
            told = dataclasses.replace(given, loss_weight=loss.hyperparameter)
            object.__setattr__(self, "hyperparameters", told)

    @property
    def loss_weight(self) -> float:
        """Of the user's term in the training loss; 0 where there is none."""
        loss = self.training.loss
        return 0.0 if loss is None else loss.weight_in(self.hyperparameters.own)

    @property
    def accumulate(self) -> int:
        """Batches that make up one update: the searched number, else the fixed one."""
        searched = self.hyperparameters.accumulate
        return self.training.accumulate if searched is None else searched
