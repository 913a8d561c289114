"""What a user adds to the training loss: the call of the term, in the units of the data.

Shapes: B windows, L rows of past, T horizon, C targets, P past and F future covariates, Q levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


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


class AddedTerm:
    """`weight` x the user's term, of forecasts and windows in the units of the data.

    All that it is given is in the precision of the weights of the network, also where the forward
    pass was in 16 bits.

    Args:
        call: `call(forecast (B, T, C, Q), past (B, L, C + P + F), future (B, T, F) or None, target
            (B, T, C)) -> scalar`.
        weight: of its value.
        minimum: (series, C + P + F), float64: what 0 stands for, of each column.
        scale: (series, C + P + F), float64: what 1 is more.
        sizes: C and F.
        dtype: of the weights of the network.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        weight: float,
        minimum: Tensor,
        scale: Tensor,
        sizes: tuple[int, int],
        dtype: torch.dtype,
    ) -> None:
        self.call, self.weight = call, weight
        self.minimum, self.scale = minimum.to(dtype), scale.to(dtype)
        self.n_targets, self.n_future = sizes

    def __call__(self, prediction: Tensor, window: Any, series: Tensor) -> Tensor:
        """The weighted value, a scalar.

        Args:
            prediction: (B, T, C, Q), scaled.
            window: with `past`, `future` and `target`, scaled.
            series: (B,), the number of the series of each window.

        Raises:
            TermError: the value is no scalar.
        """
        return self.weight * self.value(prediction, window, series)

    def value(self, prediction: Tensor, window: Any, series: Tensor) -> Tensor:
        """The same before it is weighted."""
        minimum, scale = self.minimum[series].unsqueeze(1), self.scale[series].unsqueeze(1)
        lowest, unit = minimum[..., : self.n_targets], scale[..., : self.n_targets]
        first = minimum.shape[-1] - self.n_future
        future = window.future
        if future is not None:
            future = future * scale[..., first:] + minimum[..., first:]
        value = self.call(
            prediction * unit.unsqueeze(-1) + lowest.unsqueeze(-1),
            window.past * scale + minimum,
            future,
            window.target * unit + lowest,
        )
        if not isinstance(value, Tensor):
            raise TermError(f"it returned {type(value).__name__}; expected a tensor of one number")
        if value.shape != () or not value.is_floating_point():
            raise TermError(
                f"it returned a tensor of shape {tuple(value.shape)} and {value.dtype}; expected "
                "one number, such as a mean over all: .mean()"
            )
        return value.to(prediction.dtype)


def callable_term(found: Any, facts: TermFacts, device: torch.device) -> Callable[..., Any]:
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
    call: Callable[..., Any] = made
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
