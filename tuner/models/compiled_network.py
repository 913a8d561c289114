"""Networks through torch.compile: whole, or in pieces that run side by side on a GPU.

Inductor puts all that it compiles at once on one stream. In pieces, what waits for nothing (the
future covariates, and the static ones of each block) is mixed beside the past, forward and
backward: autograd runs a piece's backward pass on the stream of its forward pass. From the first
block on, where everything comes together, the network is one piece again, so that little is fused
less than it could be.

What is compiled are functions that take the model as an argument. The model knows nothing of it,
and a training finds what another one of the same sizes had compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import CompileMode, Precision
from tuner.models.layers import WindowStatistics
from tuner.models.tsmixer import Branches, Join, TSMixer

COMPILER = "inductor"

MODES = {CompileMode.MAX_AUTOTUNE: "max-autotune-no-cudagraphs"}
"""What torch.compile is told. The step around it is captured as one CUDA graph here, so it makes
none of its own: `reduce-overhead` means nothing but these."""


def torch_mode(mode: CompileMode) -> str | None:
    """torch.compile's argument; None is its default."""
    return MODES.get(mode)


class CompiledWhole:
    """Any network, compiled at once.

    Args:
        model: on its device.
        precision: of the products.
        compiler: torch's name for it.
        mode: how hard it tries.
    """

    random_state = None

    def __init__(
        self,
        model: nn.Module,
        precision: Precision,
        compiler: str = COMPILER,
        mode: CompileMode = CompileMode.DEFAULT,
    ) -> None:
        self._model = model
        self._half = precision is Precision.BF16
        self._run = torch.compile(
            _run_whole, dynamic=False, backend=compiler, mode=torch_mode(mode)
        )

    def __call__(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        return self._run(self._model, past, future, static, half=self._half)


class CompiledPieces:
    """A `TSMixer` in compiled pieces: mixing of each kind of covariates, of the past, and the rest.

    Args:
        model: on its device.
        precision: of the products.
        branches: where the covariates are mixed.
        compiler: torch's name for it.
        mode: how hard it tries.
    """

    random_state = None

    def __init__(
        self,
        model: TSMixer,
        precision: Precision,
        branches: Branches,
        compiler: str = COMPILER,
        mode: CompileMode = CompileMode.DEFAULT,
    ) -> None:
        self._model = model
        self._half = precision is Precision.BF16
        given: dict[str, Any] = {"dynamic": False, "backend": compiler, "mode": torch_mode(mode)}
        self._branches = _CompiledBranches(branches, given, half=self._half)
        self._mix_past = torch.compile(_mix_past, **given)
        self._forecast = torch.compile(_forecast, **given)

    def __call__(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        joins = self._model.begin_covariates(future, static, self._branches)
        plane, statistics = self._mix_past(self._model, past, half=self._half)
        planes = [plane] if joins.future is None else [plane, joins.future()]
        mixed = [None if join is None else join() for join in joins.static]
        return self._forecast(self._model, planes, mixed, statistics, half=self._half)


class _CompiledBranches:
    """Begins branches with their function compiled."""

    def __init__(self, branches: Branches, given: Mapping[str, Any], *, half: bool) -> None:
        self._branches = branches
        self._half = half
        self._run = torch.compile(_run_branch, **given)

    def begin(self, function: Callable[[Tensor], Tensor], argument: Tensor) -> Join:
        return self._branches.begin(
            functools.partial(self._run, function, half=self._half), argument
        )


def _run_whole(
    model: nn.Module, past: Tensor, future: Tensor | None, static: Tensor | None, *, half: bool
) -> Tensor:
    with _autocast(past, half=half):
        forecast: Tensor = model(past, future, static)
    return _as_scored(forecast)


def _run_branch(function: Callable[[Tensor], Tensor], argument: Tensor, *, half: bool) -> Tensor:
    with _autocast(argument, half=half):
        return function(argument)


def _mix_past(model: TSMixer, past: Tensor, *, half: bool) -> tuple[Tensor, WindowStatistics]:
    with _autocast(past, half=half):
        return model.mix_past(past)


def _forecast(
    model: TSMixer,
    planes: Sequence[Tensor],
    static: Sequence[Tensor | None],
    statistics: WindowStatistics,
    *,
    half: bool,
) -> Tensor:
    with _autocast(planes[0], half=half):
        forecast = model.forecast(planes, static, statistics)
    return _as_scored(forecast)


def _autocast(tensor: Tensor, *, half: bool) -> torch.autocast:
    """Entered in what is compiled: around it, it would reach the backward pass as well.

    Eagerly it does not.
    """
    return torch.autocast(tensor.device.type, dtype=torch.bfloat16, enabled=half)


def _as_scored(forecast: Tensor) -> Tensor:
    """As the loss reads it. In here it is written so; outside it would be copied."""
    return forecast.to(torch.float32).contiguous()
