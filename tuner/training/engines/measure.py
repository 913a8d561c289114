"""What `auto` means on a GPU for a network that is not built in: measured, off the clock.

Some twenty training steps and a validation pass are timed of each way to run them: captured graphs,
plain operations, and, where trainings are long, compiled code inside the capture. A step that waits
for the host is found before it is captured: a capture that fails may leave a process that can train
no more. See docs/decisions, 33.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import Batch, DeviceData
from tuner.devices.backend_rules import BackendChoice
from tuner.errors import UsageError
from tuner.models.fault import on_one_line, out_of_memory
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.training.step import Step

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
        The choice; None where it follows from sizes alone (see `resolve_backend`), or where memory
        runs out even for plain operations, which the training then says.

    Raises:
        UsageError: an architecture, or a term of the loss, that cannot be used.
    """
    automatic = (
        config.training.backend is Backend.AUTO and not config.training.checkpoint_activations
    )
    on_gpu = data.minimum.device.type == "cuda"
    from_sizes = config.architecture.model in builtin_names() and config.training.loss is None
    if not (automatic and on_gpu) or from_sizes:
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
