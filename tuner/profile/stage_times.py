"""The pace of a training, and where its time goes: measured, not reckoned."""

from __future__ import annotations

import functools
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from tuner.bench.contender import reader
from tuner.bench.entrants import stop_after
from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError, first_line
from tuner.models.fault import out_of_memory
from tuner.models.registry import build_model
from tuner.profile.profile_records import (
    BY_REPLAY,
    Pace,
    Recorder,
    Recording,
    ReplayRecorder,
    Stages,
    how_recorded,
    merged,
    moment,
    seconds_between,
)
from tuner.training.batching import Shuffles
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine
from tuner.training.fit import check_settings
from tuner.training.stage_marks import Mark, Stage, unmarked
from tuner.trial.job import lost_context

# A configuration on its engine, driven as `fit` drives it, a stretch at a time.


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
        done = windows = 0
        began = self._read()
        ticker = _Ticker(self.device, max(1, wanted // TICKS)) if ticking else None
        stepped = (lambda: None) if ticker is None else ticker.stepped
        while done < wanted:
            now = min(wanted - done, self.batches)
            trained = self.engine.train_epoch(
                self._shuffles.next(),
                self.config.hyperparameters.learning_rate,
                stop_after(now, stepped),
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
    """Notes a moment after every so many steps."""

    def __init__(self, device: torch.device, every: int) -> None:
        self._device = device
        self._every = every
        self._steps = 0
        self._moments: list[Any] = [moment(device)]

    def stepped(self) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            self._moments.append(moment(self._device))

    def seconds(self) -> tuple[float, ...]:
        pairs = pairwise(self._moments)
        return tuple(seconds_between(before, after) / self._every for before, after in pairs)


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
    from tuner.kernels.launch_order import Launching
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


# The stages of a captured step: read off timing events in its graph.


SETTLE = 8
"""Steps before anything is timed."""
REPLAYS = 12
"""Read, each the last of some in a row: the GPU is at work when it begins."""

IN_A_ROW = 4


def of_capture(config: RunConfig, data: DeviceData) -> tuple[Recording | None, str]:
    """One step's stages, and how they were attributed; no recording where that does not work."""
    recorder, seen = ReplayRecorder(), list[Recording]()
    try:
        with running(config, data, mark=recorder) as found:
            found.steps(SETTLE)
            for _ in range(REPLAYS):
                # Full batches only: the last one may be short, and is another graph.
                found.steps(max(1, min(IN_A_ROW, found.n_windows // found.batch_size)))
                seen.append(recorder.stop())
    except UsageError:
        raise
    except (RuntimeError, ValueError) as error:
        if out_of_memory(error) is not None:
            raise
        said = first_line(error)
        return None, f"the stages of this captured step could not be told apart: {said}"
    whole = merged(seen)
    mean = {stage: seconds / len(seen) for stage, seconds in whole.seconds.items()}
    return Recording(mean, whole.spans), BY_REPLAY


ROUNDS = 3
"""Recorded and unrecorded steps take turns: what else the machine does meets both."""

TURNS = 5
"""Of a candidate, and of what it is compared with."""


PASSES = 3
"""Of validation, and of what lies between epochs, one after each of the first turns: their median.
"""

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class NoMemoryError(Exception):
    """It ran out, and the device is as before."""


@dataclass(frozen=True, slots=True)
class Paced:
    """How fast a configuration is, and what ran."""

    pace: Pace
    backend: str
    fallback: str
    """Why that backend and not the one asked for; empty where it is that one."""


@dataclass(slots=True)
class _Turns:
    """What the turns of one training took."""

    stretches: list[Stretch] = field(default_factory=list)
    validation_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)

    def take(self, found: Running, steps: int, *, whole: bool) -> None:
        """Some steps; of a whole turn also what else an epoch has."""
        self.stretches.append(found.steps(steps))
        if whole:
            self.validation_s.append(found.validate())
            self.between_s.append(found.between())


@dataclass(frozen=True, slots=True)
class Measured:
    """What a configuration came to."""

    paced: Paced
    stages: Stages
    ticks: tuple[float, ...]
    """Seconds a step from start to end, the mean of each of equal parts."""
    steps: int
    """That these are of."""


def guarded(work: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Memory that runs out becomes a `NoMemoryError`, once all that held it is gone."""

    @functools.wraps(work)
    def made(*args: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return work(*args, **named)
        except Exception as error:
            if (reason := out_of_memory(error)) is None:
                raise
            said, lost = first_line(reason), lost_context(error)
            del reason
        gc.collect()  # only out here are the frames gone, and with them what they held
        if torch.cuda.is_available() and not lost:
            torch.cuda.empty_cache()
        raise NoMemoryError(said)

    return made


@guarded
def measure_pace(
    config: RunConfig,
    data: DeviceData,
    *,
    steps: int,
    patch: Patch | None = None,
    beside: Running | None = None,
) -> tuple[Paced, Paced | None]:
    """Its pace, and that of the training `beside` it, every part of it in turns with its own: what
    else the machine does meets both.

    Raises:
        UsageError: settings with which no training is possible here.
        NoMemoryError: it does not fit.
    """
    mine, others = _Turns(), _Turns()
    with running(config, data, patch=patch) as found:
        found.steps(SETTLE)
        for turn in range(TURNS):
            mine.take(found, max(1, steps // TURNS), whole=turn < PASSES)
            if beside is not None:
                others.take(beside, max(1, steps // TURNS), whole=turn < PASSES)
        return _paced(found, mine), None if beside is None else _paced(beside, others)


def _paced(found: Running, turns: _Turns) -> Paced:
    """From timed steps, and from passes of the rest of an epoch."""
    window_s = statistics.median(each.seconds / each.windows for each in turns.stretches)
    validation_s = statistics.median(turns.validation_s)
    between_s = statistics.median(turns.between_s)
    every = found.config.training.validate_every
    pace = Pace(
        batch_size=found.batch_size,
        windows=found.n_windows,
        step_s=statistics.median(each.seconds / each.steps for each in turns.stretches),
        epoch_s=window_s * found.n_windows + validation_s / every + between_s,
        validation_s=validation_s / every,
        between_s=between_s,
        setup_s=found.setup_s,
    )
    return Paced(pace, found.engine.backend.value, found.engine.fallback)


@guarded
def measure(
    config: RunConfig,
    data: DeviceData,
    *,
    steps: int,
    began: Callable[[Running, float], None] = lambda _running, _step_s: None,
) -> Measured:
    """Pace, stages and throughput of a configuration; `began` is told of a step's seconds, roughly.

    Raises:
        UsageError: settings with which no training is possible here.
        NoMemoryError: it does not fit.
    """
    with running(config, data) as found:
        began(found, found.steps(SETTLE).seconds / SETTLE)
        # The longest stretch comes first: a throughput that falls is seen from its start.
        first = found.steps(steps, ticking=True)
        captured = found.captured
        turns = _Turns([first])
        seen = _in_turns(found, turns, max(1, steps // ROUNDS), record=not captured)
        paced = _paced(found, turns)
    recorded = merged(seen) if seen else None
    how = how_recorded(data.minimum.device)
    n_recorded = len(seen) * max(1, steps // ROUNDS)
    if captured:
        recorded, how = of_capture(config, data)
        n_recorded = 1
    stages = _stages(recorded, n_recorded, paced.pace, how=how, captured=captured)
    return Measured(paced, stages, first.ticks, first.steps)


def _in_turns(found: Running, turns: _Turns, steps: int, *, record: bool) -> list[Recording]:
    """Unrecorded stretches go to the turns; recorded ones between them come back."""
    recorder = Recorder(found.device)
    seen = []
    for _ in range(ROUNDS):
        turns.take(found, steps, whole=True)
        if record:
            found.engine.mark_with(recorder)
            recorder.start()
            found.steps(steps)
            seen.append(recorder.stop())
            found.engine.mark_with(unmarked)
    return seen


def _stages(
    recorded: Recording | None, steps: int, pace: Pace, *, how: str, captured: bool
) -> Stages:
    """Of an epoch that nobody recorded: the steps' stages in the shares that were recorded.

    Between two replays the GPU waits for the next launch, which no event in a graph sees: where the
    recorded stages of a captured step are less than its time, the rest is `other`.
    """
    training_s = pace.epoch_s - pace.validation_s - pace.between_s
    rest = {Stage.VALIDATION: pace.validation_s, Stage.BETWEEN: pace.between_s}
    if recorded is None or not recorded.total_s:
        return Stages(seconds={Stage.OTHER: training_s} | rest, how=how, difference=0.0)
    recorded_s = recorded.total_s / steps
    difference = recorded_s / pace.step_s - 1
    parts = {stage: seconds / steps for stage, seconds in recorded.seconds.items()}
    if captured and difference < 0:
        parts[Stage.OTHER] = parts.get(Stage.OTHER, 0.0) + pace.step_s - recorded_s
    whole = sum(parts.values())
    seconds = {stage: parts[stage] / whole * training_s for stage in Stage if stage in parts}
    return Stages(seconds=seconds | rest, how=how, difference=difference, spans=recorded.spans)
