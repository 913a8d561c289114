"""A configuration on its engine, driven as `fit` drives it, a stretch at a time."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from tuner.bench.contender import reader
from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.training.batching import Shuffles
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine
from tuner.training.fit import check_settings
from tuner.training.stage_marks import Mark, unmarked

Patch = Callable[[nn.Module], AbstractContextManager[object]]
"""Changes a network on its device for as long as the context lasts."""

TICKS = 60
"""Stretches that the throughput is looked at in: a moment is noted at the end of each."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some steps in a row."""

    seconds: float
    steps: int
    windows: int
    ticks: tuple[float, ...] = ()
    """Seconds a step, of each of as many equal parts."""


class Running:
    """One training that is set up and can go on for as many steps as somebody wants."""

    def __init__(
        self, config: RunConfig, data: DeviceData, engine: Engine, shuffles: Shuffles
    ) -> None:
        self.config = config
        self.engine = engine
        self.setup_s = 0.0
        self.n_windows = len(data.train)
        size = config.hyperparameters.batch_size * config.accumulate
        self.batch_size = min(size, self.n_windows)
        """Windows of a step: of all batches of an update."""
        self.device = data.minimum.device
        self._shuffles = shuffles
        self._best = engine.snapshot()
        self._read = reader(self.device)

    @property
    def batches(self) -> int:
        """Of an epoch."""
        return math.ceil(self.n_windows / self.batch_size)

    @property
    def captured(self) -> bool:
        return self.engine.backend is not Backend.EAGER and self.device.type == "cuda"

    def steps(self, wanted: int, *, ticking: bool = False) -> Stretch:
        """Train for so many steps, of as many epochs as that takes; waits for the device."""
        ticker = _Ticker(self.device, max(1, wanted // TICKS)) if ticking else None
        done = windows = 0
        began = self._read()
        if ticker is not None:
            ticker.tick()
        while done < wanted:
            now = min(wanted - done, self.batches)
            trained = self.engine.train_epoch(
                self._shuffles.next(),
                self.config.hyperparameters.learning_rate,
                _stop_after(now, ticker),
            )
            done += now
            windows += trained.n_windows
        ended = self._read()
        return Stretch(ended - began, done, windows, () if ticker is None else ticker.seconds())

    def validate(self) -> float:
        """Seconds of a whole pass."""
        began = self._read()
        self.engine.validation_loss().tolist()
        return self._read() - began

    def loss_is_finite(self) -> bool:
        """Of the validation windows, as it is trained by now."""
        return bool(self.engine.validation_loss().isfinite().all())

    def between(self) -> float:
        """Seconds of what else an epoch has: the next permutation, the best weights kept."""
        began = self._read()
        self._shuffles.draw_ahead()
        self._best.take(self.engine.model)
        return self._read() - began


class _Ticker:
    """Notes a moment after every so many steps: on a GPU on its own clock, without waiting."""

    def __init__(self, device: torch.device, every: int) -> None:
        self._every = every
        self._on_gpu = device.type == "cuda"
        self._steps = 0
        self._times: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def stepped(self) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            self.tick()

    def tick(self) -> None:
        if not self._on_gpu:
            self._times.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)

    def seconds(self) -> tuple[float, ...]:
        if self._on_gpu:
            first = self._events[0]
            self._times = [first.elapsed_time(event) / 1000 for event in self._events]
        pairs = zip(self._times, self._times[1:], strict=False)
        return tuple((after - before) / self._every for before, after in pairs)


def _stop_after(steps: int, ticker: _Ticker | None) -> Callable[[], StopReason | None]:
    left = steps

    def poll() -> StopReason | None:
        nonlocal left
        left -= 1
        if ticker is not None:
            ticker.stepped()
        return None if left > 0 else StopReason.INTERRUPTED

    return poll


@contextmanager
def running(
    config: RunConfig,
    data: DeviceData,
    *,
    mark: Mark = unmarked,
    patch: Patch | None = None,
) -> Iterator[Running]:
    """The training, set up and warmed up; everything is given back at the end.

    Raises:
        UsageError: settings with which no training is possible here.
    """
    check_settings(config, data.shapes)
    device = data.minimum.device
    began = time.perf_counter()
    with (
        arithmetic(config.training.precision),
        seeded(config.seed, device) as generator,
    ):
        model = build_model(config.architecture, data.shapes, config.hyperparameters).to(device)
        if not any(each.requires_grad for each in model.parameters()):
            name = config.architecture.model
            raise UsageError(f"{name}: has no parameters that could be trained")
        with nullcontext() if patch is None else patch(model):
            engine = _engine(config, data, model, marked=mark is not unmarked)
            try:
                engine.mark_with(mark)
                engine.warm_up()
                found = Running(config, data, engine, Shuffles(generator, len(data.train), device))
                found._read()  # noqa: SLF001 - set-up is over when the device has done it
                found.setup_s = time.perf_counter() - began
                yield found
            finally:
                engine.close()
                del engine
    _give_back(device)


def _engine(config: RunConfig, data: DeviceData, model: nn.Module, *, marked: bool) -> Engine:
    """As `make_engine`; marked, the fused kernels follow each other one by one.

    A kernel that starts while the one before still runs may have nothing between.
    """
    engine = make_engine(config, data, model)
    if not marked or engine.backend is not Backend.TRITON:
        return engine
    from tuner.kernels import Launching
    from tuner.models.tsmixer import TSMixer
    from tuner.training.engines.captured import capture_streams
    from tuner.training.engines.fused_engine import TritonEngine

    engine.close()
    assert isinstance(model, TSMixer), "the fused kernels serve no other network"
    side = capture_streams(data.minimum.device)[1]
    return TritonEngine(config, data, model, Launching(early=False, side=side))


def _give_back(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
