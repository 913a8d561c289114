"""The plain engine: one PyTorch operation after the other. Faster engines must agree with it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from tuner.config import Backend, Precision, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.kernels.host_kernels import HostKernels, library
from tuner.models.dropout import Elementwise
from tuner.models.frozen_part import HoldsFrozen
from tuner.models.tsmixer import FeatureMixing, TimeMixing, TSMixer
from tuner.training.batching import batch_shapes, batches
from tuner.training.clock import unchanged_randomness
from tuner.training.model_state import Snapshot
from tuner.training.stage_marks import Mark, Stage
from tuner.training.step import Step, TrainingState

# What a backend has to do for `fit`: the same mathematics, executed in its own way.


Poll = Callable[[], StopReason | None]
"""Asked after every step, on the host, not touching the device: a reason to stop, or None."""


@dataclass(frozen=True, slots=True)
class TrainedEpoch:
    """What one pass over the training windows came to; `fit` alone waits for `loss_sum`."""

    loss_sum: Tensor
    """(), float64: the sum of the losses of the windows trained on."""
    n_windows: int
    stopped: StopReason | None
    """Why the pass ended early; None when it was complete."""


class Engine(Protocol):
    """Owns the model's gradients and the optimiser. One engine serves one training at a time."""

    backend: Backend
    """Which one this is."""
    fallback: str
    """Why this one runs and not the one asked for, in one line; empty where it is that one."""
    _state: TrainingState

    @property
    def model(self) -> nn.Module:
        """The network being trained, on the data's device."""
        return self._state.model

    def warm_up(self) -> None:
        """Runs every kind of step and pass once, or captures or compiles it, and leaves no trace.

        Weights, buffers, gradients, optimiser state and random state are afterwards exactly what
        they were.
        """

    def mark_with(self, mark: Mark) -> None:
        """Before `warm_up`: have the stages of every training step told. A captured step tells them
        while it is captured, and never again.
        """
        self._state.mark = mark

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        """Trains on the windows `order` (N,) names, in batches of which the last may be short."""

    def validation_loss(self) -> Tensor:
        """(), float64, on the device: the exact mean loss over all validation windows.

        The next call may write to the same tensor.
        """

    def snapshot(self) -> Snapshot:
        """A copy of the model as it is now, to be taken again after better epochs."""
        return Snapshot(self.model)

    def state(self) -> dict[str, Tensor]:
        """Weights, buffers and optimiser state by name: the very tensors the next step changes."""
        return self._state.state()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """After `warm_up`, goes on from what `state` once was.

        Raises:
            ValueError: it is another network's; nothing was changed.
        """
        self._state.load(tensors)

    def close(self) -> None:
        """Gives back what the engine holds on the device beside the model."""


# What a network sees before its training.


MOST_SHOWN = 1024
"""Windows at once."""


def show_windows(model: nn.Module, data: DeviceData) -> None:
    """A network that makes something of each window once does it now, before the clock."""
    if not isinstance(model, HoldsFrozen):
        return
    for split in (data.train, data.val):
        for index in batches(torch.arange(len(split), device=data.minimum.device), MOST_SHOWN):
            model.see(split.gather(index).past)


# Memory of a CPU training stays with the process between steps.


# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_LARGEST_KEPT = 32 << 20
"""Bytes: glibc's upper limit for the size from which a block is mapped and unmapped alone."""

_NEVER = 2**31 - 1
"""Bytes free at the top of the heap before it is given back."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tells glibc, for the whole process, to keep what is freed; True where that was taken.

    Elsewhere (musl, macOS, Windows) nothing happens: their allocators have no such settings.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
    )


def give_back_freed_memory() -> None:
    """Returns to the system what a finished training has left free."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


WARM_UP_STEPS = 2
"""Per size of an update: the first allocates state and loads kernels, the second runs as all
others."""

VALIDATION_BATCH = {"cpu": 256, "cuda": 2048}
"""Windows per validation pass. The loss does not depend on it; small batches suit CPU caches."""


class EagerEngine(Engine):
    """Runs `Step` update by update, from Python."""

    backend = Backend.EAGER
    fallback = ""

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: nn.Module,
        fallback: str = "",
        step: Callable[[RunConfig, DeviceData, nn.Module], Step] = Step,
    ) -> None:
        self.fallback = fallback or self.fallback
        self._data = data
        self._step = step(config, data, model)
        self._state: TrainingState = self._step
        self._device = self._step.device
        if self._device.type == "cpu":
            keep_freed_memory()
        self._batch_size = config.hyperparameters.batch_size
        self._update_size = self._batch_size * config.accumulate
        self._validation_batch = VALIDATION_BATCH.get(self._device.type, 256)

    def warm_up(self) -> None:
        n_train, n_val = len(self._data.train), len(self._data.val)
        before = Snapshot(self.model)
        with unchanged_randomness(self._device):
            self.model.train()
            for size in batch_shapes(n_train, self._update_size):
                index = torch.arange(size, device=self._device)
                for _ in range(WARM_UP_STEPS):
                    self._step.train_on(self._data.train, index, self._batch_size)
            self.model.eval()
            for size in batch_shapes(n_val, self._validation_batch):
                with torch.no_grad():
                    self._step.loss(self._data.val.gather(torch.arange(size, device=self._device)))
        before.restore(self.model)
        self._step.reset_optimizer()

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        mark = self._step.mark
        self._step.set_learning_rate(learning_rate)
        self.model.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        n_windows = 0
        updates = list(batches(order, self._update_size))
        mine = self._step.part_of
        each_batch = (mine(part) for index in updates for part in batches(index, self._batch_size))
        with self._data.train.reading_ahead(each_batch):
            for index in updates:
                # A mean over the windows: weighted by their number, a short last update counts for
                # what it is.
                loss = self._step.train_on(self._data.train, index, self._batch_size)
                loss_sum += loss * len(index)
                n_windows += len(index)
                stopped = poll()
                mark(Stage.OTHER)
                if stopped is not None:
                    return TrainedEpoch(loss_sum, n_windows, stopped)
        return TrainedEpoch(loss_sum, n_windows, None)

    @torch.no_grad()
    def validation_loss(self) -> Tensor:
        self.model.eval()
        n_windows = len(self._data.val)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        order = torch.arange(n_windows, device=self._device)
        parts = list(batches(order, self._validation_batch))
        with self._data.val.reading_ahead(parts):
            for index in parts:
                loss_sum += self._step.loss(self._data.val.gather(index)) * len(index)
        return loss_sum / n_windows

    def close(self) -> None:
        self._step.release()
        if self._device.type == "cpu":
            give_back_freed_memory()


# The plain step on a CPU, with the elementwise work of the network in compiled C++ kernels.


class CompiledCpuEngine(EagerEngine):
    """`EagerEngine`, but for what stands between the products.

    Raises:
        TunerError: the kernels cannot be built.
    """

    backend = Backend.COMPILE

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        super().__init__(config, data, model)
        _mix_with(model, HostKernels(library()))

    def close(self) -> None:
        _mix_with(self.model, Elementwise())
        super().close()


def why_not_compiled(model: nn.Module, precision: Precision) -> str | None:
    """Why the kernels do not serve this network, in one line; None where they do."""
    if type(model) is not TSMixer:  # one derived from it may mix otherwise
        return "the kernels for a CPU serve the built-in networks only"
    if precision is not Precision.FP32:
        return "the kernels for a CPU compute in fp32 only"
    return None


def _mix_with(model: nn.Module, elementwise: Elementwise) -> None:
    for module in model.modules():
        if isinstance(module, TimeMixing | FeatureMixing):
            module.elementwise = elementwise
