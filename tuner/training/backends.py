"""Which engine executes a training."""

from __future__ import annotations

import os
import shutil

import torch
from torch import nn

from tuner.config import Backend, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.fused import why_not
from tuner.models.tsmixer import TSMixer
from tuner.training.eager import EagerEngine
from tuner.training.engine import Engine


def resolve_backend(wanted: Backend, device: torch.device) -> Backend:
    """What `auto` means on this device: captured graphs on CUDA, eager elsewhere. Any other choice stands.

    Not `compile`: its steps are shorter, but a trial of a few seconds never earns back the seconds of compiling. Not
    `triton`: nobody has measured it yet. Not a choice per trial either: the times of one study must be those of one
    backend. See docs/decisions.
    """
    if wanted is not Backend.AUTO:
        return wanted
    return Backend.GRAPH if device.type == "cuda" else Backend.EAGER


def choose_backend(training: TrainingSettings, model: nn.Module, device: torch.device) -> tuple[Backend, str]:
    """The backend that trains this model here, and why it is not the one asked for: empty where it is.

    Where the fused kernels of `triton` do not serve a model, captured graphs do.

    Raises:
        UsageError: a backend this device does not have.
    """
    backend = resolve_backend(training.backend, device)
    if backend is not Backend.EAGER and device.type != "cuda":
        raise UsageError(f"backend {backend.value!r} needs a CUDA device, this one is {device.type}; use eager or auto")
    if backend is not Backend.TRITON:
        return backend, ""
    reason = why_not(model, training.precision, device) or _why_nothing_is_built()
    return (backend, "") if reason is None else (Backend.GRAPH, reason)


def _why_nothing_is_built() -> str | None:
    if os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"):
        return None
    return "Triton builds the launchers of its kernels with a C compiler, and there is neither gcc nor clang"


def make_engine(config: RunConfig, data: DeviceData, model: nn.Module) -> Engine:
    """The engine that `choose_backend` says, for a model that is already on the data's device.

    Raises:
        UsageError: a backend this device does not have.
    """
    backend, fallback = choose_backend(config.training, model, data.minimum.device)
    if backend is Backend.EAGER:
        return EagerEngine(config, data, model)
    if backend is Backend.COMPILE:
        from tuner.training.compiled import CompiledEngine

        return CompiledEngine(config, data, model)
    if backend is Backend.TRITON:
        from tuner.training.fused.engine import TritonEngine

        assert isinstance(model, TSMixer), "the fused kernels serve no other network"
        return TritonEngine(config, data, model)
    from tuner.training.graph import GraphEngine

    return GraphEngine(config, data, model, fallback)
