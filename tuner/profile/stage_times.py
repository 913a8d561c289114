"""The pace of a training, and where its time goes: measured, not reckoned."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import torch

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError, first_line
from tuner.estimate.driven import Patch, Running, Stretch, give_back, running
from tuner.models.fault import out_of_memory
from tuner.profile.profile_records import (
    BY_REPLAY,
    Pace,
    Profile,
    Recorder,
    Recording,
    ReplayRecorder,
    how_recorded,
    merged,
    moment,
    seconds_between,
    stages_of,
    trend_of,
)
from tuner.training.stage_marks import unmarked
from tuner.trial.job import lost_context

TICKS = 60
"""Stretches that the throughput is looked at in: a moment is noted at the end of each."""


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
        """A step, of each of the stretches."""
        pairs = pairwise(self._moments)
        return tuple(seconds_between(before, after) / self._every for before, after in pairs)


# The stages of a captured step: read off timing events in its graph.


SETTLE = 8
"""Steps before anything is timed."""
REPLAYS = 12
"""Read, each the last of some in a row: the GPU is at work when it begins."""

IN_A_ROW = 4


def of_capture(config: RunConfig, data: DeviceData) -> tuple[Recording, str]:
    """One step's stages, and how they were attributed; an empty recording where that does not
    work.
    """
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
        return merged([]), f"the stages of this captured step could not be told apart: {said}"
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
        if not lost:
            give_back()  # only out here are the frames gone, and with them what they held
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
) -> tuple[Pace, Pace | None]:
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


def _paced(found: Running, turns: _Turns) -> Pace:
    """From timed steps, and from passes of the rest of an epoch."""
    window_s = statistics.median(each.seconds / each.windows for each in turns.stretches)
    validation_s = statistics.median(turns.validation_s)
    between_s = statistics.median(turns.between_s)
    every = found.config.training.validate_every
    return Pace(
        batch_size=found.batch_size,
        windows=found.n_windows,
        step_s=statistics.median(each.seconds / each.steps for each in turns.stretches),
        epoch_s=window_s * found.n_windows + validation_s / every + between_s,
        validation_s=validation_s / every,
        between_s=between_s,
        setup_s=found.setup_s,
        backend=found.engine.backend.value,
        fallback=found.engine.fallback,
    )


@guarded
def measure(
    config: RunConfig,
    data: DeviceData,
    *,
    steps: int,
    began: Callable[[Running, float], None] = lambda _running, _step_s: None,
) -> Profile:
    """Pace, stages and throughput of a configuration, and no more; `began` is told of a step's
    seconds, roughly.

    Raises:
        UsageError: settings with which no training is possible here.
        NoMemoryError: it does not fit.
    """
    with running(config, data) as found:
        began(found, found.steps(SETTLE).seconds / SETTLE)
        # The longest stretch comes first: a throughput that falls is seen from its start.
        ticker = _Ticker(found.device, max(1, steps // TICKS))
        first = found.steps(steps, ticker.stepped)
        captured = found.engine.backend is not Backend.EAGER and found.device.type == "cuda"
        turns = _Turns([first])
        seen = _in_turns(found, turns, max(1, steps // ROUNDS), record=not captured)
        pace = _paced(found, turns)
    recorded, how = merged(seen), how_recorded(data.minimum.device)
    n_recorded = len(seen) * max(1, steps // ROUNDS)
    if captured:
        recorded, how = of_capture(config, data)
        n_recorded = 1
    stages = stages_of(recorded, n_recorded, pace, how=how, captured=captured)
    trend = trend_of(ticker.seconds(), first.steps)
    return Profile(subject="", device="", settings={}, pace=pace, stages=stages, trend=trend)


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
