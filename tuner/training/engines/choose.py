"""Which engine executes a training."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from tuner.config import Backend, ModelShapes, Precision, RunConfig, StopReason
from tuner.data.windows import Batch, DeviceData
from tuner.devices.backend_rules import BackendChoice, plainly_why, why_not_on, why_not_together
from tuner.errors import UsageError
from tuner.kernels import why_not
from tuner.kernels.host_kernels import why_not_built
from tuner.models.fault import on_one_line, out_of_memory
from tuner.models.frozen_part import HoldsFrozen
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.eager import CompiledCpuEngine, EagerEngine, Engine, why_not_compiled
from tuner.training.engines.ranks import Ranks
from tuner.training.step import Step

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
    its sizes take, and few others have the same ones. See docs/decisions/0006.

    Whether the kernels serve the network, and can be built here, is not asked; `choose_backend`
    does.
    """
    if config.training.backend is not Backend.AUTO:
        return config.training.backend
    if plainly_why(config.training):
        return Backend.EAGER
    if device.type == "cpu":
        return Backend.COMPILE if _large_on_a_cpu(config, shapes) else Backend.EAGER
    if device.type != "cuda":
        return Backend.EAGER
    capability = torch.cuda.get_device_capability(device)
    return Backend.TRITON if faster_fused(config, shapes, capability) else Backend.GRAPH


def identifying_backend(
    config: RunConfig, shapes: ModelShapes, device: torch.device, streamed: str = ""
) -> Backend:
    """What a checkpoint here belongs to: `resolve_backend`, but for kernels that cannot be built,
    and for data that does not fit.

    Of all that `choose_backend` falls back for, only these do not follow from the configuration:
    another machine at the same folder, or this one tomorrow, may have a compiler, or more memory,
    and would go on with times of captured graphs.
    """
    if streamed and device.type == "cuda":
        return Backend.EAGER
    backend = resolve_backend(config, shapes, device)
    if backend is Backend.TRITON and why_nothing_is_built() is not None:
        return Backend.GRAPH
    if backend is Backend.COMPILE and device.type == "cpu" and why_not_built() is not None:
        return Backend.EAGER
    return backend


def choose_backend(
    config: RunConfig,
    shapes: ModelShapes,
    model: nn.Module,
    device: torch.device,
    streamed: str = "",
) -> tuple[Backend, str]:
    """The backend that trains this model here, and why it is not `resolve_backend`'s, or empty.

    Where the fused kernels of `triton` do not serve a model, or a setting of its training, captured
    graphs do; where the C++ kernels of `compile` on a CPU do not, or cannot be built, PyTorch's
    operations. Where activations are checkpointed, why `auto` came to these is said as well.
    On CUDA, data that is `streamed`, for the reason that this says, is for plain operations alone:
    whatever is captured or fused reads windows from rows on the device.

    Raises:
        UsageError: a backend, or a setting, this device does not have.
    """
    training = config.training
    if (problem := why_not_together(training) or why_not_on(training, device.type)) is not None:
        raise UsageError(problem)
    backend = resolve_backend(config, shapes, device)
    if isinstance(model, HoldsFrozen) and model.why_eager and backend is not Backend.EAGER:
        return Backend.EAGER, model.why_eager
    if streamed and backend is not Backend.EAGER and device.type == "cuda":
        return Backend.EAGER, streamed
    if training.backend is Backend.AUTO and (why := plainly_why(training)):
        return backend, why
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


def make_engine(
    config: RunConfig, data: DeviceData, model: nn.Module, ranks: Ranks | None = None
) -> Engine:
    """The engine that `choose_backend` says, for a model that is already on the data's device;
    with `ranks` one that trains on all of them.

    Raises:
        UsageError: a backend this device does not have, or a network that only one can train.
    """
    device = data.minimum.device
    backend, fallback = choose_backend(config, data.shapes, model, device, data.streamed)
    assert ranks is None or backend is Backend.EAGER, "gpus_per_trial goes with no other"
    if backend is Backend.EAGER:
        on_one = EagerEngine if ranks is None else ranks.engine
        return on_one(config, data, model, fallback)
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


# What `auto` means on a GPU for a network that is not built in: measured, off the clock.


STEPS, LEAST_STEPS = 20, 4
"""Timed of each candidate; fewer where they are long."""

MOST_S = 2.0
"""For the timed steps of one candidate."""

LEAST_GAIN = 0.05
"""Of an epoch's time: for less, captured graphs are not left. It is what two timings differ by."""

EPOCHS = 48
"""That a training of the reference job takes."""

WORTH_COMPILING_S = 120.0
"""Compiled code is tried where so many epochs last longer than this: to compile takes about half
a minute, for each combination of sizes."""


def what_auto_means(config: RunConfig, data: DeviceData) -> BackendChoice | None:
    """The fastest backend for networks and batches of these sizes.

    Nothing of it is left: random state, weights and the device's memory are as before.

    Args:
        config: of a training; its rate and decay play no part.
        data: on its device.

    Returns:
        The choice; None where it follows from sizes alone (see `resolve_backend`), where the data
        is streamed, or where memory runs out even for plain operations, which the training says.

    Raises:
        UsageError: an architecture, or a term of the loss, that cannot be used.
    """
    automatic = config.training.backend is Backend.AUTO and not plainly_why(config.training)
    on_gpu = data.minimum.device.type == "cuda"
    from_sizes = config.architecture.model in builtin_names() and config.training.loss is None
    if not (automatic and on_gpu) or from_sizes or data.streamed:
        return None
    try:
        return _measured_in_peace(config, data)
    except Exception as error:
        if out_of_memory(error) is None:
            raise
    torch.cuda.empty_cache()  # only out here are the frames gone, and with them what they held
    return None


def _measured_in_peace(config: RunConfig, data: DeviceData) -> BackendChoice:
    """With random state and arithmetic as in the training, and put back after it."""
    device = data.minimum.device
    with arithmetic(config.training.precision), seeded(config.seed, device) as generator:
        model = build_model(config.architecture, data.shapes, config.hyperparameters)
        order = torch.randperm(len(data.train), generator=generator, device=device)
        tried = Candidates(config, data, model.to(device), order)
        return measured(tried, config.training.max_epochs)


@dataclass(frozen=True, slots=True)
class Candidates:
    """One network, run in several ways."""

    config: RunConfig
    data: DeviceData
    model: nn.Module
    order: torch.Tensor

    def epoch_s(self, backend: Backend) -> float:
        """Seconds of an epoch, validation included, from some of its steps."""
        training = self.config.training.but(backend=backend)
        engine = make_engine(replace(self.config, training=training), self.data, self.model)
        try:
            engine.warm_up()
            few = self._timed(lambda: self._steps(engine.train_epoch, LEAST_STEPS))
            steps = max(LEAST_STEPS, min(STEPS, int(MOST_S / (few / LEAST_STEPS))))
            update_size = self.config.hyperparameters.batch_size * self.config.accumulate
            updates = math.ceil(len(self.order) / update_size)
            steps = min(steps, updates)
            took = self._timed(lambda: self._steps(engine.train_epoch, steps))
            validation_s = self._timed(engine.validation_loss)
            return took / steps * updates + validation_s / self.config.training.validate_every
        finally:
            engine.close()

    def why_not_captured(self) -> str:
        """Where a step waits for the host, in one line; empty where none does."""
        if isinstance(self.model, HoldsFrozen) and self.model.why_eager:
            return self.model.why_eager
        step = Step(self.config, self.data, self.model, capturable=True)
        step.set_learning_rate(self.config.hyperparameters.learning_rate)
        windows = min(self.config.hyperparameters.batch_size, len(self.order))
        batch = step.gathered(self.data.train, self.order[:windows])
        try:
            _one_step(step, batch)  # libraries and workspaces come with the first one
            with _no_waiting():
                _one_step(step, batch)
        except (RuntimeError, UsageError) as error:  # the latter of a term, which names its cause
            if out_of_memory(error) is not None:
                raise
            return str(error) if isinstance(error, UsageError) else on_one_line(error)
        finally:
            step.release()
        return ""

    def _steps(self, train_epoch: Callable[..., object], steps: int) -> None:
        left = [steps]

        def poll() -> StopReason | None:
            left[0] -= 1
            return StopReason.INTERRUPTED if left[0] <= 0 else None

        train_epoch(self.order, self.config.hyperparameters.learning_rate, poll)

    def _timed(self, work: Callable[[], object]) -> float:
        """Seconds until the device has done it."""
        synchronize = synchronizer(self.order.device)
        synchronize()
        began = time.perf_counter()
        work()
        synchronize()
        return time.perf_counter() - began


def measured(tried: Candidates, max_epochs: int) -> BackendChoice:
    """The choice between what can be run.

    Raises:
        Exception: whatever the network raises when it runs plainly.
    """
    seconds = {Backend.EAGER: tried.epoch_s(Backend.EAGER)}
    reason = tried.why_not_captured()
    if not reason:
        try:
            seconds[Backend.GRAPH] = tried.epoch_s(Backend.GRAPH)
        except Exception as error:
            if out_of_memory(error) is None and not _alive():
                raise
            reason = on_one_line(error)
    graph_s = seconds.get(Backend.GRAPH, 0.0)
    if graph_s * min(max_epochs, EPOCHS) > WORTH_COMPILING_S:
        # Whatever the compiler cannot do is no fault of the network.
        with contextlib.suppress(Exception):
            seconds[Backend.COMPILE] = tried.epoch_s(Backend.COMPILE)
    return fastest(seconds, reason)


def fastest(seconds: Mapping[Backend, float], why_not_captured: str) -> BackendChoice:
    """The choice by seconds an epoch: captured graphs, unless another backend is clearly faster."""
    epoch_s = {backend.value: took for backend, took in seconds.items()}
    if Backend.GRAPH not in seconds:
        reason = f"the step cannot be captured: {why_not_captured}"
        return BackendChoice(backend=Backend.EAGER, reason=reason, epoch_s=epoch_s)
    best = min(seconds, key=lambda backend: seconds[backend])
    if seconds[best] >= (1 - LEAST_GAIN) * seconds[Backend.GRAPH]:
        return BackendChoice(backend=Backend.GRAPH, epoch_s=epoch_s)
    reason = f"an epoch takes {seconds[best] / seconds[Backend.GRAPH]:.2f} of a captured one's time"
    return BackendChoice(backend=best, reason=reason, epoch_s=epoch_s)


def _one_step(step: Step, batch: Batch) -> None:
    step.model.train()
    step.train(batch)
    step.model.eval()
    with torch.no_grad():
        step.loss(batch)


@contextlib.contextmanager
def _no_waiting() -> Iterator[None]:
    """Whatever waits for the device in here is an error."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(action="ignore"):  # that the mode does not see everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _alive() -> bool:
    """Whether the process can still use its device after a capture that failed."""
    try:
        torch.rand(1, device="cuda").item()
    except RuntimeError:
        return False
    return True
