"""The compiled engine: forward and loss through torch.compile, captured like the plain step.

Inductor fuses elementwise work and reductions that the plain step launches one by one, and takes
seconds to do so. What it made is kept on disk (`TORCHINDUCTOR_CACHE_DIR`, by default in the
temporary folder) and found again by other trials of the same sizes, other workers and later
launches. Its dropout draws from its own stream of random numbers: masks differ from the eager ones,
the rate does not.

Where the fused kernels around a network serve it, the engine of
`tuner.training.engines.fused.compiled_step` runs in place of this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.compiled_network import torch_mode
from tuner.training.engines.graph import GraphEngine

RECOMPILES = 4096
"""A worker meets every size and mode of a search; beyond torch's limit of 8 it goes on eagerly."""


class CompiledEngine(GraphEngine):
    """Captures a step whose forward and loss are compiled, for exactly these shapes; where a term
    of the user's is added to the loss, the forward alone.
    """

    backend = Backend.COMPILE
    uses_branches = False  # the compiler orders the work itself, on one stream

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, fallback: str = ""
    ) -> None:
        super().__init__(config, data, model, fallback)
        mode = torch_mode(config.training.compile_mode)
        step = self._step
        if step.term is not None:  # the user's code runs as it is written
            step.predicted = torch.compile(step.predicted, dynamic=False, mode=mode)  # type: ignore[method-assign]
        else:
            step.loss = torch.compile(step.loss, dynamic=False, mode=mode)  # type: ignore[method-assign]

    def warm_up(self) -> None:
        with no_silent_fall_back():
            super().warm_up()


@contextlib.contextmanager
def no_silent_fall_back() -> Iterator[None]:
    """Every shape is compiled, or compiling fails: never eager without a word."""
    dynamo: Any = torch._dynamo.config  # noqa: SLF001 - torch's documented place for this setting
    with dynamo.patch(
        recompile_limit=RECOMPILES,
        accumulated_recompile_limit=RECOMPILES,
        fail_on_recompile_limit_hit=True,
    ):
        yield
