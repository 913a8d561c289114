"""Which engine executes a training."""

from __future__ import annotations

import importlib.util
import os
import shutil

import torch
from torch import nn

from tuner.config import Backend, ModelShapes, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices.backend_rules import WHY_EAGER, why_not_on, why_not_together
from tuner.errors import UsageError
from tuner.kernels import why_not
from tuner.kernels.host_kernels import why_not_built
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.eager import CompiledCpuEngine, EagerEngine, Engine, why_not_compiled

FASTER_FUSED: tuple[tuple[int, int], ...] = ((256, 1024),)
"""Hidden and batch size: up to both of any pair, a fused step is shorter than a captured one.

In the reference job's shapes: whole epochs of both at hidden 32 to 256 and batch 64, 256 and 1024,
the fused ones 1.03 times as fast at the largest of these sizes and 5.0 at the smallest
(benchmarks/against_darts/h200/sizes.md).
"""

LONGEST_FUSED = 32
"""Longest horizon that `auto` leaves to them: longer planes have other tiles, never timed."""

LEAST_WINDOW, LEAST_PLANE = 96, 1 << 16
"""From so many hours in and out, and so many numbers in a plane of a batch (batch x horizon x
hidden), `auto` has kernels built for a CPU. A smaller training is over in seconds, and a step's
time is no longer that of its planes.
"""

WHY_NO_FUSED_LOSS = (
    "the kernels around the network hold the quantile loss alone, and [training.loss] adds a term"
)

MEASURED_ON = (9, 0)
"""Compute capability of the GPUs that this was measured on (Hopper); on others nobody knows."""


def resolve_backend(config: RunConfig, shapes: ModelShapes, device: torch.device) -> Backend:
    """What `auto` means for this configuration, data and device. Any other choice stands.

    On CUDA the fused kernels of `triton` where they are known to be faster, else captured graphs;
    on a CPU the C++ kernels of `compile` where planes are large, else eager. It follows from sizes,
    precision and device alone, never from what ran before: a configuration always gets the same.
    On CUDA not `compile`: a trial of a few seconds never earns back the minute of compiling that
    its sizes take, and few others have the same ones. See docs/decisions.

    Whether the kernels serve the network, and can be built here, is not asked; `choose_backend`
    does.
    """
    if config.training.backend is not Backend.AUTO:
        return config.training.backend
    if config.training.checkpoint_activations:
        return Backend.EAGER
    if device.type == "cpu":
        return Backend.COMPILE if _large_on_a_cpu(config, shapes) else Backend.EAGER
    if device.type != "cuda":
        return Backend.EAGER
    capability = torch.cuda.get_device_capability(device)
    return Backend.TRITON if faster_fused(config, shapes, capability) else Backend.GRAPH


def identifying_backend(config: RunConfig, shapes: ModelShapes, device: torch.device) -> Backend:
    """What a checkpoint here belongs to: `resolve_backend`, but for kernels that cannot be built.

    Of all that `choose_backend` falls back for, only this does not follow from the configuration:
    another machine at the same folder, or this one tomorrow, may have a compiler, and would go on
    with times of captured graphs.
    """
    backend = resolve_backend(config, shapes, device)
    if backend is Backend.TRITON and why_nothing_is_built() is not None:
        return Backend.GRAPH
    if backend is Backend.COMPILE and device.type == "cpu" and why_not_built() is not None:
        return Backend.EAGER
    return backend


def choose_backend(
    config: RunConfig, shapes: ModelShapes, model: nn.Module, device: torch.device
) -> tuple[Backend, str]:
    """The backend that trains this model here, and why it is not `resolve_backend`'s, or empty.

    Where the fused kernels of `triton` do not serve a model, or a setting of its training, captured
    graphs do; where the C++ kernels of `compile` on a CPU do not, or cannot be built, PyTorch's
    operations. Where activations are checkpointed, why `auto` came to these is said as well.

    Raises:
        UsageError: a backend, or a setting, this device does not have.
    """
    training = config.training
    if (problem := why_not_together(training) or why_not_on(training, device.type)) is not None:
        raise UsageError(problem)
    backend = resolve_backend(config, shapes, device)
    if training.checkpoint_activations and training.backend is Backend.AUTO:
        return backend, WHY_EAGER
    if backend is Backend.COMPILE and device.type == "cpu":
        reason = why_not_compiled(model, config.training.precision) or why_not_built()
        return (backend, "") if reason is None else (Backend.EAGER, reason)
    if backend is not Backend.EAGER and device.type != "cuda":
        raise UsageError(
            f"backend {backend.value!r} needs a CUDA device, "
            f"this one is {device.type}; use eager or auto"
        )
    if backend is not Backend.TRITON:
        return backend, ""
    reason = why_not_fused(config, model, device) or why_nothing_is_built()
    return (backend, "") if reason is None else (Backend.GRAPH, reason)


def why_not_fused(config: RunConfig, model: nn.Module, device: torch.device) -> str | None:
    """Why the fused kernels do not serve this training; None where they do."""
    if config.accumulate > 1:
        return (
            "the fused kernels update the weights after every batch, "
            f"accumulate is {config.accumulate}"
        )
    if config.loss_weight != 0:
        return WHY_NO_FUSED_LOSS
    return why_not(model, config.training.precision, device)


def faster_fused(config: RunConfig, shapes: ModelShapes, capability: tuple[int, int]) -> bool:
    """Whether `auto` means the fused kernels on a GPU of this compute capability."""
    sizes = config.hyperparameters
    if config.training.loss is not None:  # all weights of a study, 0 too, are timed alike
        return False
    if config.training.precision.half or shapes.horizon > LONGEST_FUSED:
        return False
    if capability != MEASURED_ON:
        return False
    return any(
        (sizes.hidden_size or 0) <= hidden and sizes.batch_size <= batch
        for hidden, batch in FASTER_FUSED
    )


def _large_on_a_cpu(config: RunConfig, shapes: ModelShapes) -> bool:
    sizes = config.hyperparameters
    plane = sizes.batch_size * shapes.horizon * (sizes.hidden_size or 0)
    return (
        config.training.precision is Precision.FP32
        and shapes.input_size + shapes.horizon >= LEAST_WINDOW
        and plane >= LEAST_PLANE
    )


def why_nothing_is_built() -> str | None:
    """Why Triton can build no kernel on this machine; None where it can."""
    if os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"):
        return None
    return (
        "Triton builds the launchers of its kernels with a C compiler, "
        "and there is neither gcc nor clang"
    )


def step_kernels_serve(model: nn.Module) -> bool:
    """Whether gather, loss and optimiser can be kernels of our own, whatever the network is."""
    single = all(
        parameter.dtype == torch.float32
        for parameter in model.parameters()
        if parameter.requires_grad
    )
    return (
        single and importlib.util.find_spec("triton") is not None and why_nothing_is_built() is None
    )


def make_engine(config: RunConfig, data: DeviceData, model: nn.Module) -> Engine:
    """The engine that `choose_backend` says, for a model that is already on the data's device.

    Raises:
        UsageError: a backend this device does not have.
    """
    backend, fallback = choose_backend(config, data.shapes, model, data.minimum.device)
    if backend is Backend.EAGER:
        return EagerEngine(config, data, model, fallback)
    if backend is Backend.COMPILE and data.minimum.device.type == "cpu":
        return CompiledCpuEngine(config, data, model)
    if backend is Backend.COMPILE:
        # Those kernels update after every batch, and scale no loss.
        plain = config.accumulate == 1 and config.training.precision is not Precision.FP16
        fused_loss = config.loss_weight == 0
        if plain and fused_loss and step_kernels_serve(model):
            from tuner.training.engines.fused_engine import CompiledStepEngine

            return CompiledStepEngine(config, data, model)
        from tuner.training.engines.captured import CompiledEngine

        return CompiledEngine(config, data, model, "" if fused_loss else WHY_NO_FUSED_LOSS)
    if backend is Backend.TRITON:
        from tuner.training.engines.fused_engine import TritonEngine

        assert isinstance(model, TSMixer), "the fused kernels serve no other network"
        return TritonEngine(config, data, model)
    from tuner.training.engines.captured import GraphEngine

    return GraphEngine(config, data, model, fallback)
