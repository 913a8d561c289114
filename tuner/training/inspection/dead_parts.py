"""What takes no part in a training: parameters without a gradient, forecasts that never change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadParameter:
    """One that should be trained and never is."""

    name: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} ({' x '.join(map(str, self.shape)) or 'a number'})"


class Gradients:
    """Which parameters ever get one.

    One look is not enough: behind a layer that begins at 0, the first gradient is 0 as well.
    """

    def __init__(self, model: nn.Module) -> None:
        self._trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._alive: set[str] = set()

    def note(self) -> None:
        """After a backward pass."""
        for name, parameter in self._trained:
            if parameter.grad is not None and bool(parameter.grad.any()):
                self._alive.add(name)

    def dead(self) -> tuple[DeadParameter, ...]:
        """Those whose gradients were None or exactly 0 each time, in the network's order."""
        return tuple(
            DeadParameter(name=name, shape=tuple(parameter.shape))
            for name, parameter in self._trained
            if name not in self._alive
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantForecasts:
    """Forecasts that are the same for every window, and that training leaves as they are."""

    quantiles: tuple[float, ...] = ()
    """Levels of which all forecasts are."""
    targets: tuple[str, ...] = ()
    """Columns of which all forecasts are."""
    steps: tuple[int, ...] = ()
    """Time steps, from 1, of which all forecasts are."""
    count: int = 0
    """Of a window's forecasts, each a time step, target and quantile."""
    total: int = 0

    def __str__(self) -> str:
        if self.count == self.total:
            return "all forecasts"
        named = [f"quantile {each:g}" for each in self.quantiles]
        named += [f"target {each}" for each in self.targets]
        named += [f"time step {each}" for each in self.steps]
        if named:
            return f"all forecasts of {', '.join(named)}"
        return f"a window's forecasts: {self.count} of {self.total}"


def constant_forecasts(
    before: Tensor, after: Tensor, targets: Sequence[str], quantiles: Sequence[float]
) -> ConstantForecasts:
    """What never changes.

    Args:
        before: (N, T, C, Q), forecasts of N windows before some steps of training.
        after: (N, T, C, Q), of the same windows after them.
        targets: C names.
        quantiles: Q levels.
    """
    still = (before == before[:1]).all(0) & (after == after[:1]).all(0) & (before[0] == after[0])
    return ConstantForecasts(
        quantiles=tuple(quantiles[n] for n in _whole(still, (0, 1))),
        targets=tuple(targets[n] for n in _whole(still, (0, 2))),
        steps=tuple(n + 1 for n in _whole(still, (1, 2))),
        count=int(still.sum()),
        total=still.numel(),
    )


def _whole(still: Tensor, others: tuple[int, int]) -> list[int]:
    """The places along one axis where all along the two others are still."""
    whole = still.all(max(others)).all(min(others))
    return [n for n, each in enumerate(whole.tolist()) if each]
