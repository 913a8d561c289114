"""The frozen, typed records that travel through the program.
Nothing here imports anything heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, get_args

OBJECTIVES = ("wall_clock_s", "test_mql")
"""The two objectives of every study, both minimised, in this order."""

MANY = 1_000_000
"""More than anybody means by a number of trials, epochs or seeds, which every database can hold."""
MOST_SEARCHES = 100
"""Of one variant, in one group."""


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


SamplerName = Literal["auto", "alternate", "kg", "gp", "tpe", "nsga2", "random", "qmc"]
"""Who chooses the next configuration; `search/sampler.py` says how each is made."""

SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)


class MqlSplit(StrEnum):
    """Whose MQL is the second objective of a study."""

    TEST = "test"
    VAL = "val"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperparameters:
    """One configuration of the search space, in the values training uses (never encoded)."""

    learning_rate: float
    weight_decay: float
    dropout: float
    hidden_size: int
    batch_size: int

    def as_dict(self) -> dict[str, float | int]:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShapes:
    """Sizes a task asks of a model.

    Legend used in every shape comment: B batch, L input_size, T horizon, C n_targets, P n_past
    (covariates known only up to now), F n_future (covariates known over the horizon too), S
    n_static, Q n_quantiles, H hidden size.
    """

    input_size: int
    horizon: int
    n_targets: int
    n_past: int
    n_future: int
    n_static: int
    n_quantiles: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Which network: a built-in name, or `package.module:Class`
    of the user's own, with its fixed settings.
    """

    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """The protocol's fixed settings (the reference job's values are the defaults)."""

    max_epochs: int = 200
    patience: int = 10
    min_delta: float = 1e-5
    gradient_clip: float = 1.0
    learning_rate_decay: float = 0.999
    time_limit_s: float | None = None
    precision: Precision = Precision.FP32
    backend: Backend = Backend.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything one training needs beside the data and the device."""

    architecture: Architecture
    hyperparameters: Hyperparameters
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One finished epoch: losses per window on scaled values, and the clock after validation."""

    epoch: int
    """Counted from 1."""
    train_loss: float
    """Mean over the windows trained on, each under the weights and the dropout it met."""
    val_loss: float
    """Exact mean over all validation windows, under the weights at the end of the epoch."""
    learning_rate: float
    """What this epoch was trained with."""
    elapsed_s: float
    """`wall_clock_s` so far."""
