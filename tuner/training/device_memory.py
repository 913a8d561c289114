"""The device's memory before a training, and after one for which there was not enough."""

from __future__ import annotations

import gc

import torch
from torch import nn

from tuner.config import Hyperparameters, StopReason
from tuner.training.engines.pool import EnginePool
from tuner.training.result import FitResult
from tuner.training.run_state import RunState


def give_back_leftovers(device: torch.device, pool: EnginePool | None) -> None:
    """What earlier trainings of this process left in cycles: it would count as this one's memory.

    One that ended well on an engine of the pool leaves none, and looking for some takes a tenth of
    a second.
    """
    if device.type == "cuda" and (pool is None or not pool.took_back_last):
        gc.collect()


def without_memory(state: RunState, message: str, model: nn.Module | None) -> FitResult:
    """The result when memory ran out, with what the training held given back to the device."""
    if model is not None:
        model.zero_grad(set_to_none=True)
    gc.collect()
    if state.device.type == "cuda" and not state.context_lost:
        torch.cuda.empty_cache()
    state.clock.stop()
    state.end_setup()
    message = f"out of memory with {_sizes(state.config.hyperparameters)}: {message}"
    return state.result(StopReason.OUT_OF_MEMORY, message, None)


def _sizes(hyperparameters: Hyperparameters) -> str:
    """The whole numbers of a configuration, on which its memory may depend."""
    batch_size = f"batch_size {hyperparameters.batch_size}"
    sizes = [
        f"{name} {value}"
        for name, value in hyperparameters.as_dict().items()
        if name != "batch_size" and type(value) is int
    ]
    return f"{', '.join(sizes)} and {batch_size}" if sizes else batch_size
