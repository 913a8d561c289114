"""The term that a study adds to its training loss: found, made, and tried before it is used.

Whatever is wrong with it is one line that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import RunConfig
from tuner.data.windows import Batch, DeviceData
from tuner.errors import UsageError
from tuner.models.fault import FAULTS, on_one_line, out_of_memory
from tuner.models.own import load_named
from tuner.training.clock import unchanged_randomness

# What a user adds to the training loss: the call of the term, in the units of the data.


@dataclass(frozen=True, kw_only=True)
class TermFacts:
    """What a class is told of the task when it is made: `Class(facts)`."""

    quantiles: tuple[float, ...]
    """The Q levels of a forecast, ascending."""
    target_columns: tuple[str, ...]
    past_covariates: tuple[str, ...]
    future_covariates: tuple[str, ...]
    """Those of the file; two columns for each calendar cycle come after them."""
    input_size: int
    horizon: int
    frequency: str
    """From one row to the next, as the task names it."""


OWN_WEIGHTS = (
    "it has parameters of its own, which nothing trains; make them buffers, or part of the network"
)


class TermError(ValueError):
    """What is wrong with a term or with its value, in one line."""


def callable_term(found: Any, facts: TermFacts, device: torch.device) -> Term:
    """A function as it is; of a class, an object that is made with the facts, on the device.

    Raises:
        TermError: it is neither, or has parameters that want to be trained.
    """
    made = found(facts) if isinstance(found, type) else found
    if isinstance(made, nn.Module):
        made = made.to(device)
        if any(parameter.requires_grad for parameter in made.parameters()):
            raise TermError(OWN_WEIGHTS)
    if not callable(made):
        raise TermError(f"it is no function and no class: {type(made).__name__}")
    call: Term = made
    return call


def refuse_weights(value: Tensor, forecast: Tensor) -> None:
    """Of a value that was computed of a `forecast`: nothing else may want a gradient, wherever the
    term keeps it.

    Raises:
        TermError: something does.
    """
    to_do, seen = [value.grad_fn], set()
    while to_do:
        node = to_do.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        wanted = getattr(node, "variable", None)  # of a node that adds up a leaf's gradient
        if wanted is not None and wanted is not forecast:
            raise TermError(OWN_WEIGHTS)
        to_do += [before for before, _ in node.next_functions]


def with_calendar(columns: Tensor, usual: float, width: int) -> Tensor:
    """(series, K) -> (series, width): the calendar's columns come last, and are never scaled."""
    missing = width - columns.shape[1]
    return torch.cat([columns, columns.new_full((len(columns), missing), usual)], dim=1)


TRIED_WINDOWS = 2
NOISE = 0.1
"""Of the forecast that a term is tried on, around what came, in units of the training rows' range:
no residual is exactly 0 there, where a root has no gradient."""


Term = Callable[..., Any]
"""As `OwnTerm` calls it."""


class OwnTerm:
    """`weight` x the user's term, of forecasts and windows in the units of the data.

    All that it is given is in the precision of the weights of the network, also where the forward
    pass was in 16 bits.

    Args:
        name: what faults name.
        call: `call(forecast (B, T, C, Q), past (B, L, C + P + F), future (B, T, F) or None, target
            (B, T, C)) -> scalar`.
        weight: of its value.
        data: on its device.
        dtype: of the weights of the network.
    """

    def __init__(
        self,
        name: str,
        call: Callable[..., Any],
        weight: float,
        data: DeviceData,
        dtype: torch.dtype,
    ) -> None:
        self.name, self.call, self.weight, self.dtype = name, call, weight, dtype
        s = data.shapes
        self.n_targets, self.n_future = s.n_targets, s.n_future
        width = s.n_targets + s.n_past + s.n_future
        minimum = torch.cat([data.minimum, data.covariate_minimum], dim=1)
        scale = torch.cat([data.scale, data.covariate_scale], dim=1)
        # (series, C + P + F): what 0 stands for, of each column, and what 1 is more.
        self.minimum = with_calendar(minimum, 0.0, width).to(dtype)
        self.scale = with_calendar(scale, 1.0, width).to(dtype)

    def __call__(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Weighted: a scalar, in the precision of the prediction."""
        return self.weight * self.value(prediction, batch)

    def value(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The same before it is weighted.

        Args:
            prediction: (B, T, C, Q), scaled.
            batch: gathered with its series.

        Raises:
            UsageError: whatever the term raises, or a value that is no scalar.
        """
        assert batch.series is not None, "gathered for a term"
        with named_faults(self.name):
            value = self._called(prediction, batch, batch.series)
            if not isinstance(value, Tensor):
                raise TermError(
                    f"it returned {type(value).__name__}; expected a tensor of one number"
                )
            if value.shape != () or not value.is_floating_point():
                raise TermError(
                    f"it returned a tensor of shape {tuple(value.shape)} and {value.dtype}; "
                    "expected one number, such as a mean over all: .mean()"
                )
            return value.to(prediction.dtype)

    def _called(self, prediction: Tensor, batch: Batch, series: Tensor) -> Any:
        """With everything in the units of the data."""
        minimum, scale = self.minimum[series].unsqueeze(1), self.scale[series].unsqueeze(1)
        lowest, unit = minimum[..., : self.n_targets], scale[..., : self.n_targets]
        first = minimum.shape[-1] - self.n_future
        future = batch.future
        if future is not None:
            future = future * scale[..., first:] + minimum[..., first:]
        return self.call(
            prediction * unit.unsqueeze(-1) + lowest.unsqueeze(-1),
            batch.past * scale + minimum,
            future,
            batch.target * unit + lowest,
        )


def own_term(config: RunConfig, data: DeviceData, dtype: torch.dtype) -> OwnTerm | None:
    """The term of a training, tried once; None where it has none, or one of weight 0, whose code is
    not run.

    Args:
        config: of the training.
        data: on its device.
        dtype: of the weights of the network.

    Raises:
        UsageError: the term cannot be found or made, raises, or returns no finite scalar with a
            gradient; a weight below 0.
    """
    weight, loss = config.loss_weight, config.training.loss
    if loss is None or weight == 0:
        return None
    if not weight > 0:
        raise UsageError(f"the weight of {loss.term} must be 0 or more, not {weight}")
    term = tried_term(loss.term, weight, data, dtype)
    batch_size = config.hyperparameters.batch_size
    if batch_size == 1 or len(data.train) % batch_size == 1:
        with unchanged_randomness(data.minimum.device):
            _try_on(1, term, data)
    return term


def tried_term(name: str, weight: float, data: DeviceData, dtype: torch.dtype) -> OwnTerm:
    """The term of this name, tried on two training windows: as `own_term`.

    Random numbers that it draws change nothing.
    """
    with unchanged_randomness(data.minimum.device):
        found: Any = load_named(name)
        with named_faults(name):
            call = callable_term(found, facts_of(data), data.minimum.device)
        term = OwnTerm(name, call, weight, data, dtype)
        _try_on(min(TRIED_WINDOWS, len(data.train)), term, data)
    return term


def losses_in_words(config: RunConfig, train_loss: float, val_loss: float | None) -> str:
    """The losses of an epoch, with what the first of them holds beside the quantile loss."""
    named = _weighted(config)
    term = f" (with {named})" if named else ""
    validated = "" if val_loss is None else f", validation loss {val_loss}"
    return f"training loss {train_loss}{term}{validated}"


def _weighted(config: RunConfig) -> str:
    """The term with its weight; empty where nothing is added."""
    loss = config.training.loss
    if loss is None or not config.loss_weight:
        return ""
    return f"{config.loss_weight:g} x {loss.term.rpartition('/')[2]}"


def skipped_in_words(config: RunConfig) -> str:
    """Of a training in fp16 whose every update was skipped."""
    named = _weighted(config)
    term = f"; the term {named} may be too large" if named else ""
    return (
        "fp16 skipped every update, as gradients were no finite numbers in 16 bits: nothing was "
        f"trained{term}; use precision bf16 or fp32"
    )


@contextmanager
def named_faults(name: str) -> Iterator[None]:
    """What is raised in here is the term's fault, unless memory ran out."""
    try:
        yield
    except TermError as error:
        raise UsageError(f"the term {name}: {error}") from error
    except FAULTS as error:
        if out_of_memory(error) is not None:
            raise
        raise UsageError(f"the term {name} failed: {on_one_line(error)}") from error


def facts_of(data: DeviceData) -> TermFacts:
    """What a class is told."""
    task = data.task
    return TermFacts(
        quantiles=task.quantiles,
        target_columns=task.target_columns,
        past_covariates=task.past_covariates,
        future_covariates=task.future_covariates,
        input_size=data.shapes.input_size,
        horizon=task.horizon,
        frequency=task.frequency,
    )


def _try_on(windows: int, term: OwnTerm, data: DeviceData) -> None:
    index = torch.arange(windows, device=data.minimum.device)
    batch = data.train.gather(index, with_series=True)
    target = batch.target.to(term.dtype)
    levels = len(data.task.quantiles)
    forecast = target.unsqueeze(-1).expand(*target.shape, levels)
    forecast = (forecast + NOISE * torch.randn_like(forecast)).requires_grad_()
    value = term.value(forecast, batch)
    with named_faults(term.name):
        refuse_weights(value, forecast)
        gradient = None
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(value, forecast, allow_unused=True)
    if gradient is None:
        raise UsageError(
            f"the term {term.name}: its value has no gradient by the forecast, so it trains "
            "nothing; compute it from the forecast, with operations of torch"
        )
    where = "the first training windows" if windows > 1 else "a batch of one window, which comes"
    for what, seen in (("value", value.detach()), ("gradient", gradient)):
        if not bool(torch.isfinite(seen).all()):
            raise UsageError(
                f"the term {term.name}: its {what} is no finite number on {where} with a noisy "
                "forecast of what came; check its arithmetic, such as divisions and roots of 0, "
                "or a deviation of one value"
            )
