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

from tuner.bench.contender import Entry, Epoch, Job, KernelCount
from tuner.config import Precision, RunConfig
from tuner.errors import exit_code_of
from tuner.training.clock import seeded

COUNTED_STEP = 1
"""Kernels are counted in the second step of a training: the first creates the optimiser's state."""

_LOGGERS = (
    "darts",
    "pytorch_lightning",
    "lightning_fabric",
    "pytorch_lightning.utilities.rank_zero",
)


class EpochTimer(Callback):
    """The end of set-up, and every epoch from its start to the end of its validation."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._began = 0.0
        self._trained = 0.0
        self._steps_before = 0
        self.started: float | None = None
        self.ends: list[float] = []
        self.epochs: list[Epoch] = []
        self.steps: list[int] = []

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        self._steps_before = trainer.global_step
        self._began = self._read()
        if self.started is None:
            self.started = self._began

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        if not trainer.sanity_checking:
            self._trained = self._read()

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.sanity_checking:
            return
        ended = self._read()
        steps = trainer.global_step - self._steps_before
        self.ends.append(ended)
        self.steps.append(steps)
        self.epochs.append(
            Epoch(seconds=ended - self._began, step_s=(self._trained - self._began) / steps)
        )


class StepTimer(Callback):
    """The clock at the end of set-up, after `settle` steps, and after every `chunk` steps more."""

    def __init__(self, read: Callable[[], float], *, settle: int, chunk: int) -> None:
        self._read = read
        self._settle = settle
        self._chunk = chunk
        self.started: float | None = None
        self.marks: list[float] = []

    def on_train_start(self, *_: Any) -> None:
        self.started = self._read()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        beyond = trainer.global_step - self._settle
        if beyond >= 0 and beyond % self._chunk == 0:
            self.marks.append(self._read())


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

    def kernels_per_step(self) -> int | None:
        device = self._job.device
        if device.type != "cuda":
            return None
        counter = KernelCounter(device)
        with seeded_lightning(self._job.precision, self._job.seed, device):
            self._train_a_little(counter)
        return counter.kernels

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
