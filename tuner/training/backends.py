"""Which engine executes a training."""

from __future__ import annotations

import torch
from torch import nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.training.eager import EagerEngine
from tuner.training.engine import Engine


def resolve_backend(wanted: Backend, device: torch.device) -> Backend:
    """What `auto` means on this device: captured graphs on CUDA, eager elsewhere. Any other choice stands.

    Not `compile`: its steps are shorter, but a trial of a few seconds never earns back the seconds of compiling. Not a
    choice per trial either: the times of one study must be those of one backend. See docs/decisions.
    """
    if wanted is not Backend.AUTO:
        return wanted
    return Backend.GRAPH if device.type == "cuda" else Backend.EAGER


def make_engine(config: RunConfig, data: DeviceData, model: nn.Module) -> Engine:
    """The engine for a model that is already on the data's device.

    Raises:
        UsageError: a backend this device does not have.
    """
    device = data.minimum.device
    backend = resolve_backend(config.training.backend, device)
    if backend is Backend.EAGER:
        return EagerEngine(config, data, model)
    if device.type != "cuda":
        raise UsageError(f"backend {backend.value!r} needs a CUDA device, this one is {device.type}; use eager or auto")
    if backend is Backend.COMPILE:
        from tuner.training.compiled import CompiledEngine

        return CompiledEngine(config, data, model)
    from tuner.training.graph import GraphEngine

    return GraphEngine(config, data, model)
