"""A configuration on its engine, driven as `fit` drives it, a stretch at a time: by whoever
measures what a training takes.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.training.batching import Shuffles
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine, Poll
from tuner.training.fit import check_settings
from tuner.training.run_state import peak_memory_of_process
from tuner.training.stage_marks import Mark, unmarked

Patch = Callable[[nn.Module], AbstractContextManager[object]]
"""Changes a network on its device for as long as the context lasts."""

PEAK_RESET = Path("/proc/self/clear_refs")


def trained_with(config: RunConfig, **changes: object) -> RunConfig:
    """The same configuration with other settings of training."""
    return replace(config, training=config.training.but(**changes))


def with_batch(config: RunConfig, batch_size: int) -> RunConfig:
    """The same configuration with another batch."""
    return replace(config, hyperparameters=replace(config.hyperparameters, batch_size=batch_size))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps in a row."""

    seconds: float
    steps: int
    windows: int


class Running:
    """One training that is set up and can go on for as many steps as somebody wants."""

    def __init__(
        self, config: RunConfig, data: DeviceData, engine: Engine, generator: torch.Generator
    ) -> None:
        self.config = config
        self.engine = engine
        self.setup_s = 0.0
        self.n_windows = len(data.train)
        size = config.hyperparameters.batch_size * config.accumulate
        self.batch_size = min(size, self.n_windows)
        """Windows of a step: of all batches of an update."""
        self.batches = math.ceil(self.n_windows / self.batch_size)
        """Of an epoch."""
        self.device = data.minimum.device
        self.shuffles = Shuffles(generator, self.n_windows, self.device)
        self.best = engine.snapshot()
        self.read = reader(self.device)

    def steps(self, wanted: int, stepped: Callable[[], object] = lambda: None) -> Stretch:
        """Train for so many steps, of as many epochs as that takes, each of which is told; waits
        for the device.
        """
        done = windows = 0
        rate = self.config.hyperparameters.learning_rate
        began = self.read()
        while done < wanted:
            now = min(wanted - done, self.batches)
            order = self.shuffles.next()
            windows += self.engine.train_epoch(order, rate, stop_after(now, stepped)).n_windows
            done += now
        return Stretch(self.read() - began, done, windows)

    def validate(self) -> float:
        """Seconds of a whole pass."""
        began = self.read()
        self.engine.validation_loss().tolist()
        return self.read() - began

    def between(self) -> float:
        """Seconds of what else an epoch has: the next permutation, the best weights kept."""
        began = self.read()
        self.shuffles.draw_ahead()
        self.best.take(self.engine.model)
        return self.read() - began


@contextmanager
def running(
    config: RunConfig, data: DeviceData, *, mark: Mark = unmarked, patch: Patch | None = None
) -> Iterator[Running]:
    """The training, set up and warmed up; everything is given back at the end.

    Raises:
        UsageError: settings with which no training is possible here.
    """
    check_settings(config, data.shapes)
    device = data.minimum.device
    began = time.perf_counter()
    with arithmetic(config.training.precision), seeded(config.seed, device) as generator:
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        if not any(each.requires_grad for each in model.parameters()):
            name = config.architecture.model
            raise UsageError(f"{name}: has no parameters that could be trained")
        with nullcontext() if patch is None else patch(model):
            engine = _engine(config, data, model, marked=mark is not unmarked)
            try:
                engine.mark_with(mark)
                engine.warm_up()
                found = Running(config, data, engine, generator)
                found.setup_s = found.read() - began  # set-up is over when the device has done it
                yield found
            finally:
                engine.close()
    del engine, model, found.engine, found.best  # whoever drove it may hold it for a while
    give_back()


def _engine(config: RunConfig, data: DeviceData, model: nn.Module, *, marked: bool) -> Engine:
    """As `make_engine`; marked, the fused kernels follow each other one by one.

    A kernel that starts while the one before still runs may have nothing between.
    """
    engine = make_engine(config, data, model)
    if not marked or engine.backend is not Backend.TRITON:
        return engine
    from tuner.kernels.launch_order import Launching
    from tuner.models.tsmixer import TSMixer
    from tuner.training.engines.captured import capture_streams
    from tuner.training.engines.fused_engine import TritonEngine

    engine.close()
    assert isinstance(model, TSMixer), "the fused kernels serve no other network"
    side = capture_streams(data.minimum.device)[1]
    return TritonEngine(config, data, model, Launching(early=False, side=side))


def stop_after(steps: int, stepped: Callable[[], object] = lambda: None) -> Poll:
    """Ends an epoch after so many steps, and tells of each."""
    left = steps

    def poll() -> StopReason | None:
        nonlocal left
        left -= 1
        stepped()
        return None if left > 0 else StopReason.INTERRUPTED

    return poll


def reader(device: torch.device) -> Callable[[], float]:
    """A clock that is read when the device has finished everything asked of it; seconds."""
    synchronize = synchronizer(device)

    def read() -> float:
        synchronize()
        return time.perf_counter()

    return read


# The memory of a device, or of this process on a CPU.


def give_back() -> None:
    """What nobody holds any more.

    Raises:
        RuntimeError: the GPU cannot be used any more.
    """
    gc.collect()
    torch.cuda.empty_cache()


def reset_peak(device: torch.device) -> None:
    """From now on `peak_bytes` counts."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):  # not Linux: then it is the most that the process ever took
        PEAK_RESET.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """The most that was allocated; on a CPU by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory_of_process()
