"""From a name of neuralforecast's to a network: its class found, built for a task, and tried."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.config import LIBRARY, ModelShapes
from tuner.errors import UsageError, first_line, unknown_name
from tuner.models.fault import on_one_line, out_of_memory
from tuner.models.layers import ReversibleInstanceNorm
from tuner.models.of_neuralforecast.faster_layers import make_faster
from tuner.models.of_neuralforecast.library_source import (
    NO_NETWORK,
    QUANTILES_FIRST,
    check_names,
    lists_in,
    take_our_norm,
)
from tuner.models.own import check_output, is_named, random_windows

# Which of a task's covariates a model class of neuralforecast is given, and what is said of the
# others.


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariates:
    """How many columns of each kind are handed over, and how many are left out.

    A multivariate class has one table of static values for all windows, where ours differ by window
    (the number of the series they were cut from). It gets them as past columns that do not change.
    """

    past: int
    future: int
    static: int
    static_as_past: int
    left_out: tuple[str, ...]
    """What the class does not take, as in "6 future"."""

    @staticmethod
    def of(model_class: Any, shapes: ModelShapes) -> Covariates:
        """Those of a task with these shapes, for a class with neuralforecast's flags."""
        past = shapes.n_past if model_class.EXOGENOUS_HIST else 0
        future = shapes.n_future if model_class.EXOGENOUS_FUTR else 0
        static = shapes.n_static if model_class.EXOGENOUS_STAT else 0
        as_past = 0
        if model_class.MULTIVARIATE:
            as_past, static = (static if model_class.EXOGENOUS_HIST else 0), 0
        kinds = (
            ("past", shapes.n_past - past),
            ("future", shapes.n_future - future),
            ("static", shapes.n_static - static - as_past),
        )
        return Covariates(
            past=past,
            future=future,
            static=static,
            static_as_past=as_past,
            left_out=tuple(f"{number} {kind}" for kind, number in kinds if number),
        )

    def lists(self) -> dict[str, list[str] | None]:
        """The constructor's lists of names; the library asks for names, nobody reads them."""
        numbers = {
            "hist_exog_list": self.past + self.static_as_past,
            "futr_exog_list": self.future,
            "stat_exog_list": self.static,
        }
        return {
            key: [f"{key[:4]}{n}" for n in range(number)] or None for key, number in numbers.items()
        }

    def notice(self, reference: str) -> str:
        """That some are not used, for the person who starts a study; empty where all are."""
        if not self.left_out:
            return ""
        listed = " and ".join(filter(None, (", ".join(self.left_out[:-1]), self.left_out[-1])))
        return f"{reference} does not take the task's {listed} covariates: they are left out"


# A model of neuralforecast, called as tuner's networks are.


class LibraryNetwork(nn.Module):
    """(past, future, static) -> (B, T, C, Q) with a model of neuralforecast inside.

    A univariate model forecasts each target by itself: the targets are folded into the batch, and
    each gets all covariates of its window. A multivariate model gets the targets as its series.

    Args:
        model: of neuralforecast, with Q outputs a value.
        shapes: of the task.
        covariates: those that the model was built for.
        revin: whether a window's level and spread are taken off before the model and put back
            after it (`tuner.models.layers`).
    """

    def __init__(
        self, model: nn.Module, shapes: ModelShapes, covariates: Covariates, *, revin: bool
    ) -> None:
        super().__init__()
        self.model = model
        self.shapes = shapes
        self.covariates = covariates
        self.multivariate = bool(getattr(model, "MULTIVARIATE", False))
        self.quantiles_first = type(model).__name__ in QUANTILES_FIRST
        self.norm = ReversibleInstanceNorm(shapes.n_targets) if revin else None

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """Shapes as in `tuner.models.tsmixer.TSMixer.forward`."""
        s = self.shapes
        targets = past[..., : s.n_targets]
        if self.norm is None:
            return self._forecast(targets, past, future, static)
        plain, statistics = self.norm(targets)
        affine = torch.addcmul(self.norm.bias, plain, self.norm.weight)
        forecast = self._forecast(affine, past, future, static)
        return self.norm.inverse(forecast, statistics)

    def _forecast(
        self, targets: Tensor, past: Tensor, future: Tensor | None, static: Tensor | None
    ) -> Tensor:
        s = self.shapes
        columns = self._columns(past, future, static)
        if self.multivariate:
            flat: Tensor = self.model(_as_series(targets, columns))
            if self.quantiles_first:  # (B, T, Q * C)
                by_quantile = flat.reshape(len(past), s.horizon, s.n_quantiles, s.n_targets)
                return by_quantile.transpose(2, 3)
            return flat.reshape(len(past), s.horizon, s.n_targets, s.n_quantiles)
        folded: Tensor = self.model(_folded(targets, columns))  # (B * C, T, Q)
        each = folded.reshape(len(past), s.n_targets, s.horizon, s.n_quantiles)
        return each.transpose(1, 2)

    def _columns(
        self, past: Tensor, future: Tensor | None, static: Tensor | None
    ) -> dict[str, Tensor | None]:
        """What the model takes of the covariates: (B, L, P), (B, L + T, F) and (B, S), or None."""
        s, taken = self.shapes, self.covariates
        hist, futr = [], None
        if taken.past:
            hist.append(past[..., s.n_targets : s.n_targets + s.n_past])
        if taken.static_as_past and static is not None:
            hist.append(static.unsqueeze(1).expand(-1, past.shape[1], -1))
        if taken.future and future is not None:
            futr = torch.cat((past[..., s.n_targets + s.n_past :], future), dim=1)
        return {
            "hist_exog": torch.cat(hist, dim=-1) if hist else None,
            "futr_exog": futr,
            "stat_exog": static if taken.static else None,
        }


def _folded(targets: Tensor, columns: dict[str, Tensor | None]) -> dict[str, Any]:
    """The library's batch for a univariate model: B * C windows of one series."""
    n_targets = targets.shape[2]
    insample = targets.transpose(1, 2).reshape(-1, targets.shape[1], 1)
    batch: dict[str, Any] = {"insample_y": insample, "insample_mask": torch.ones_like(insample)}
    for name, column in columns.items():
        batch[name] = None if column is None else column.repeat_interleave(n_targets, dim=0)
    return batch


def _as_series(targets: Tensor, columns: dict[str, Tensor | None]) -> dict[str, Any]:
    """A multivariate model's batch; each series has all columns: (B, K, time, C)."""
    n_targets = targets.shape[2]
    batch: dict[str, Any] = {
        "insample_y": targets,
        "insample_mask": torch.ones_like(targets),
        "stat_exog": None,
    }
    for name in ("hist_exog", "futr_exog"):
        column = columns[name]
        batch[name] = (
            None
            if column is None
            else column.transpose(1, 2).unsqueeze(-1).expand(-1, -1, -1, n_targets)
        )
    return batch


# The random seed that neuralforecast's constructors ask for, and set in the whole process.


_SET = ("PL_GLOBAL_SEED", "PL_SEED_WORKERS")
"""Environment variables that Lightning leaves behind."""
_LOGGER = "lightning_fabric.utilities.seed"


@contextlib.contextmanager
def library_seed() -> Iterator[int]:
    """A seed drawn from torch's random state: ours decides the weights.

    The constructor seeds Python's, numpy's and torch's generators with it, notes it in the
    environment and logs it. Afterwards all of that is as it was, but for the one number drawn.
    """
    seed = int(torch.randint(2**31, ()))
    environment = {name: os.environ.get(name) for name in _SET}
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the one it seeds
    logger = logging.getLogger(_LOGGER)
    level = logger.level
    initialised = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if initialised else ()
    logger.setLevel(logging.WARNING)
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield seed
    finally:
        logger.setLevel(level)
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        for name, value in environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


GIVEN = "; it was given "
"""After it: the arguments of a class that says no."""

MOST_OF_ARGUMENTS = 300
"""Characters."""


def build_of_library(name: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> nn.Module:
    """Neuralforecast's model `name` as a network of tuner, tried once.

    A list is given as a list or as text that holds one, `"[8, 4, 1]"`. `revin` goes to a class that
    takes it; for one without a reversible norm it is tuner's, on unless it is false.

    Args:
        name: of the class in `neuralforecast.models`.
        shapes: of the task.
        arguments: hyperparameters and settings by the class's own names.

    Raises:
        UsageError: one line for each way in which the class cannot be used.
    """
    reference = f"{LIBRARY}:{name}"
    model_class = find_class(name)
    given = lists_in(reference, arguments)
    parameters = _named_arguments(model_class)
    revin = take_our_norm(reference, parameters, given)
    check_names(reference, given, parameters)
    covariates = Covariates.of(model_class, shapes)
    model = _construct(reference, model_class, shapes, covariates, given)
    make_faster(model)
    network = LibraryNetwork(model, shapes, covariates, revin=revin)
    check_output(reference, network, shapes)
    return network


def find_class(name: str) -> Any:
    """The class of neuralforecast that is called so.

    Raises:
        UsageError: neuralforecast is not installed, has no such class, or it is no network that
            forecasts all hours at once.
    """
    try:
        from neuralforecast import models
        from neuralforecast.common._base_model import BaseModel
    except ImportError as error:
        raise UsageError(
            f"{LIBRARY}:{name} needs the package {error.name or LIBRARY}, which is not installed"
        ) from error
    if name not in models.__all__:
        raise unknown_name(f"model of {LIBRARY}", name, models.__all__)
    found = getattr(models, name)
    if not issubclass(found, BaseModel):
        raise UsageError(f"{LIBRARY}:{name} is no network: {NO_NETWORK}")
    if found.RECURRENT and "recurrent" not in inspect.signature(found).parameters:
        raise UsageError(
            f"{LIBRARY}:{name} forecasts hour after hour from samples of its own; "
            "tuner takes networks that forecast the quantiles of all hours at once"
        )
    return found


def _named_arguments(model_class: Any) -> tuple[str, ...]:
    """Without `**trainer_kwargs`, which takes what the library hands to its trainer."""
    parameters = inspect.signature(model_class).parameters.values()
    return tuple(p.name for p in parameters if is_named(p))


def _construct(
    reference: str,
    model_class: Any,
    shapes: ModelShapes,
    covariates: Covariates,
    given: Mapping[str, Any],
) -> nn.Module:
    from neuralforecast.losses.pytorch import MQLoss

    # Only the number of levels matters: it is the number of outputs. The loss is never called.
    levels = [(n + 1) / (shapes.n_quantiles + 1) for n in range(shapes.n_quantiles)]
    loss = MQLoss(quantiles=levels)
    series = {"n_series": shapes.n_targets} if model_class.MULTIVARIATE else {}
    try:
        # The library's advice on its arguments would be repeated for every trial.
        with library_seed() as seed, warnings.catch_warnings(action="ignore"):
            model: nn.Module = model_class(
                h=shapes.horizon,
                input_size=shapes.input_size,
                loss=loss,
                random_seed=seed,
                **series,
                **covariates.lists(),
                **given,
            )
    except ImportError as error:
        raise UsageError(f"{reference} needs {_package(error)}, which is not installed") from error
    except Exception as error:
        if out_of_memory(error) is not None:
            raise
        # The library's own refusals are plain exceptions: their words are enough.
        why = first_line(error) if type(error) is Exception else on_one_line(error)
        raise UsageError(f"{reference}: building it failed: {why}{_words(given)}") from error
    if any(p.is_complex() for p in model.parameters()):
        raise UsageError(
            f"{reference} has complex weights, which the protocol's optimiser does not take"
        )
    # The levels are a parameter of the loss: they must not be counted, saved or compared as one.
    for each in {id(each): each for each in model.modules() if isinstance(each, MQLoss)}.values():
        held = each.quantiles.detach()
        del each.quantiles
        each.quantiles = held
    return model


def _words(given: Mapping[str, Any]) -> str:
    """What a class that says no was given: its own words seldom name the argument."""
    if not given:
        return ""
    words = ", ".join(f"{name} = {value!r}" for name, value in given.items())
    return f"{GIVEN}{words[:MOST_OF_ARGUMENTS]}"


def _package(error: ImportError) -> str:
    """The package that is missing: by the error's name, or as the library's words quote it."""
    quoted = re.search(r"`([\w.-]+)`", str(error))
    return error.name or (quoted.group(1) if quoted else on_one_line(error))


# What a model of neuralforecast does with a task, seen by asking it.


WINDOWS = 8
"""Of random values that a model is asked for twice, then half of them."""
SAME = 1e-3
"""Forecasts of random values from 0 to 1 that differ by less are the same but for rounding."""


@torch.no_grad()
def remarks_on(name: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """What to know of the class called `name` before its errors are compared: it is built and
    asked. Torch's random state is left as it was.

    Raises:
        UsageError: as `build_of_library`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_of_library(name, shapes, arguments).eval()
        past, future, static = random_windows(shapes, WINDOWS)
        # Of zeros, a network may make nothing.
        windows = past, future, None if static is None else torch.ones_like(static)
        first, second = network(*windows), network(*windows)
        alone = network(*(None if each is None else each[: WINDOWS // 2] for each in windows))
    if not _same(first, second):
        return ("draws random numbers when it forecasts",)
    if not _same(first[: WINDOWS // 2], alone):
        return ("a window's forecast depends on the others of its batch",)
    return ()


def _same(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() < SAME)
