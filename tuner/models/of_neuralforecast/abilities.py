"""What a model of neuralforecast does with a task, seen by asking it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tuner.config import ModelShapes
from tuner.models.of_neuralforecast.build import build_of_library, find_class

WINDOWS = 8
"""Of random values that a model is asked for twice, then half of them."""
SAME = 1e-3
"""Forecasts of random values from 0 to 1 that differ by less are the same but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Of one class at one task's shapes."""

    multivariate: bool
    past: bool
    future: bool
    static: bool
    """Which covariates the class takes, whether or not the task has some."""
    repeats: bool
    """The same windows, asked twice, get the same forecast."""
    by_window: bool
    """A window's forecast does not depend on the other windows of its batch."""

    def remarks(self) -> Iterator[str]:
        """What to know before its errors are compared."""
        if not self.repeats:
            yield "draws random numbers when it forecasts"
        elif not self.by_window:
            yield "a window's forecast depends on the others of its batch"


@torch.no_grad()
def abilities(name: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> Abilities:
    """Build the class called `name` and ask it; torch's random state is left as it was.

    Raises:
        UsageError: as `build_of_library`.
    """
    s, model = shapes, find_class(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = build_of_library(name, shapes, arguments)
        past = torch.rand(WINDOWS, s.input_size, s.n_targets + s.n_past + s.n_future)
        future = torch.rand(WINDOWS, s.horizon, s.n_future) if s.n_future else None
        static = torch.ones(WINDOWS, s.n_static) if s.n_static else None
        network.eval()
        first, second = network(past, future, static), network(past, future, static)
        half = slice(WINDOWS // 2)
        alone = network(past[half], _part(future, half), _part(static, half))
    return Abilities(
        multivariate=model.MULTIVARIATE,
        past=model.EXOGENOUS_HIST,
        future=model.EXOGENOUS_FUTR,
        static=model.EXOGENOUS_STAT,
        repeats=_same(first, second),
        by_window=_same(first[half], alone),
    )


def _part(tensor: Tensor | None, rows: slice) -> Tensor | None:
    return None if tensor is None else tensor[rows]


def _same(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() < SAME)
