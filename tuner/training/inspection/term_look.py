"""A look at the term of a training loss: its value, and whether it trains anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import TunerError
from tuner.training.own_term import named_faults, tried_term
from tuner.training.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSeen:
    """On the first training windows, of the forecasts of the untrained network."""

    name: str
    value: float
    """Not weighted."""
    weight: float
    reaches: bool
    """Whether its gradient by any parameter of the network is not 0."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "term": self.name,
            "value": self.value,
            "weight": self.weight,
            "gradient_reaches_the_network": self.reaches,
        }

    def in_words(self) -> str:
        """What was checked of it, for a person."""
        reached = "its gradient reaches the network" if self.reaches else "its gradient is 0"
        return f"{self.value:.4g} at weight {self.weight:g}, a finite scalar; {reached}"

    def notices(self) -> tuple[str, ...]:
        """That it trains nothing, where that is so."""
        if self.reaches:
            return ()
        said = (
            f"the term {self.name}: its gradient by all parameters of the network is 0 on the "
            "first windows; where that is not meant, check what it computes of the forecast"
        )
        return (said,)


def look_at_term(config: RunConfig, step: Step, data: DeviceData, windows: int) -> TermSeen | None:
    """The term, also where its weight is 0; None where the training has none.

    Raises:
        UsageError: the term cannot be used.
        TunerError: its value, or its gradient, is no finite number.
    """
    loss = config.training.loss
    if loss is None:
        return None
    dtype = next(step.model.parameters()).dtype
    term = step.term or tried_term(loss.term, 1.0, data, dtype)
    batch = data.train.gather(torch.arange(windows), with_series=True)
    step.model.eval()
    value = term.value(step.predicted(batch), batch)
    trained = [p for p in step.model.parameters() if p.requires_grad]
    with named_faults(loss.term):
        gradients = torch.autograd.grad(value, trained, allow_unused=True)
    found = [each for each in gradients if each is not None]
    if not all(bool(torch.isfinite(each).all()) for each in (value.detach(), *found)):
        raise TunerError(
            f"the term {loss.term}: its value, or its gradient, is no finite number for the "
            f"forecasts of the untrained network on the first {windows} windows; check its "
            "arithmetic"
        )
    return TermSeen(
        name=loss.term,
        value=float(value.detach()),
        weight=config.loss_weight,
        reaches=any(bool(each.any()) for each in found),
    )
