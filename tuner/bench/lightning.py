"""What both Lightning libraries need: callbacks that read the clock, a trainer that only trains."""

from __future__ import annotations

import logging
import math
import signal
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from torch import nn

from tuner.bench.contender import DeviceMemory, Entry, Epoch, Job, KernelCount, Round
from tuner.config import Precision, RunConfig
from tuner.errors import exit_code_of
from tuner.estimate.driven import reader
from tuner.training.clock import seeded

COUNTED_STEP = 1
"""Kernels are counted in the second step of a training: the first creates the optimiser's state."""

_LOGGERS = (
    "darts",
    "pytorch_lightning",
    "lightning_fabric",
    "pytorch_lightning.utilities.rank_zero",
)


class Timer(Callback):
    """Reads the clock at the end of set-up, and around the epochs that count."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self.started = 0.0
        self.epochs: list[Epoch] = []
        self.marks: list[float] = []
        """The ends of what is timed; the first epoch begins at the first of these."""

    def on_train_start(self, *_: Any) -> None:
        self.started = self._read()


class EpochTimer(Timer):
    """Every epoch from its start to the end of its validation; the first settles."""

    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__(read)
        self._began = 0.0
        self._trained = 0.0
        self._steps_before = 0
        self.steps: list[int] = []

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        self._steps_before = trainer.global_step
        self._began = self._read()

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            self._trained = self._read()

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.sanity_checking:
            return
        ended = self._read()
        steps = trainer.global_step - self._steps_before
        self.steps.append(steps)
        if self.marks:
            step_s = (self._trained - self._began) / steps
            self.epochs.append(Epoch(seconds=ended - self._began, step_s=step_s))
        self.marks.append(ended)


class StepTimer(Timer):
    """After `settle` steps, every `chunk` steps stand for an epoch of `n_steps`."""

    def __init__(self, read: Callable[[], float], *, settle: int, chunk: int, n_steps: int) -> None:
        super().__init__(read)
        self._settle = settle
        self._chunk = chunk
        self._n_steps = n_steps

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        beyond = trainer.global_step - self._settle
        if beyond < 0 or beyond % self._chunk:
            return
        now = self._read()
        if self.marks:
            step_s = (now - self.marks[-1]) / self._chunk
            self.epochs.append(Epoch(seconds=step_s * self._n_steps, step_s=step_s))
        self.marks.append(now)


class KernelCounter(Callback):
    """Counts the kernels of one training step: forward, loss, backward, clipping, optimiser."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._counting: KernelCount | None = None
        self.kernels: int | None = None

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == COUNTED_STEP and self.kernels is None:
            self._counting = KernelCount(self._device)

    def on_train_batch_end(self, *_: Any) -> None:
        if self._counting is not None:
            self.kernels = self._counting.stop()
            self._counting = None


class InLightning(ABC):
    """A contender that Lightning trains."""

    def __init__(self, job: Job, entry: Entry, config: RunConfig) -> None:
        self.entry = entry
        self._job = job
        self._config = config
        self._n_windows = len(job.prepared.train.starts)
        self._n_steps = math.ceil(self._n_windows / config.hyperparameters.batch_size)

    def run(self, epochs: int) -> Round:
        device = self._job.device
        read = reader(device)
        memory = DeviceMemory(device)
        with seeded_lightning(self._job.precision, self._job.seed, device):
            began = read()
            timer, network = self._trained(read, epochs)
        assert len(timer.epochs) == epochs, f"{len(timer.epochs)} epochs were timed, not {epochs}"
        return Round(
            setup_s=timer.started - began,
            epochs=tuple(timer.epochs),
            counted=(timer.marks[0], timer.marks[-1]),
            peak_memory_bytes=memory.peak(),
            n_parameters=sum(p.numel() for p in network.parameters() if p.requires_grad),
            n_windows=self._n_windows,
            n_steps=self._n_steps,
        )

    def kernels_per_step(self) -> int | None:
        device = self._job.device
        if device.type != "cuda":
            return None
        counter = KernelCounter(device)
        with seeded_lightning(self._job.precision, self._job.seed, device):
            self._train_a_little(counter)
        return counter.kernels

    @abstractmethod
    def _trained(self, read: Callable[[], float], epochs: int) -> tuple[Timer, nn.Module]:
        """What timed so many epochs, after what settles, and the network that was trained."""

    @abstractmethod
    def _train_a_little(self, callback: Callback) -> None:
        """As many steps as it takes until kernels are counted."""


def trainer_arguments(
    device: torch.device, precision: Precision, callback: Callback
) -> dict[str, Any]:
    """A trainer that logs, saves and prints nothing, on the one device that is visible."""
    arguments: dict[str, Any] = {
        "accelerator": "gpu" if device.type == "cuda" else "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "callbacks": [callback],
    }
    if precision.half:
        arguments["precision"] = "bf16-mixed" if precision is Precision.BF16 else "16-mixed"
    return arguments


@contextmanager
def seeded_lightning(precision: Precision, seed: int, device: torch.device) -> Iterator[None]:
    """A training by Lightning: seeded, quiet, with the arithmetic asked for.

    Ctrl-C stays a KeyboardInterrupt, which Lightning would make an exit. The arithmetic is set
    through torch's older interface: Lightning asks through it, and torch refuses a mixture.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    cudnn: Any = torch.backends.cudnn
    before, convolved = torch.get_float32_matmul_precision(), cudnn.conv.fp32_precision
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        torch.set_float32_matmul_precision("high" if precision is Precision.TF32 else "highest")
        # In torch's default state, convolutions round to TF32 whatever is said of products.
        cudnn.conv.fp32_precision = "tf32" if precision is Precision.TF32 else "ieee"
        with seeded(seed, device), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except SystemExit as ended:
        signal.signal(signal.SIGINT, on_interrupt)  # which Lightning left ignored
        raise KeyboardInterrupt(exit_code_of(ended.__context__)) from None
    finally:
        torch.set_float32_matmul_precision(before)
        cudnn.conv.fp32_precision = convolved
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
