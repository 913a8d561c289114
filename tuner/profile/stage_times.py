"""The pace of a training, and where its time goes: measured, not reckoned."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from tuner.bench.kernels import is_kernel
from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError, first_line
from tuner.models.fault import out_of_memory
from tuner.profile.profile_records import Pace, Stages
from tuner.profile.recorders import HOW, Recording, ReplayRecorder, merged, recorder_for, recording
from tuner.profile.timed_training import Patch, Running, Stretch, running
from tuner.training.stage_marks import Stage, unmarked
from tuner.trial.survival import lost_context

# The stages of a captured step: read off timing events in its graph, or off markers in a trace.


SETTLE = 8
REPLAYS = 12
"""Read, each the last of some in a row: the GPU is at work when it begins."""

IN_A_ROW = 4

MARKER = "spin_kernel"
"""What `torch.cuda._sleep` launches."""

BY_MARKERS = (
    "the step is one captured graph: by kernels that do nothing and stand at the boundaries of its "
    "stages, as a trace of a replay shows them"
)


class MarkerRecorder:
    """Launches a marker at each boundary of the step that is captured first."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._full = False

    def __call__(self, stage: Stage) -> None:
        if self._full or not torch.cuda.is_current_stream_capturing():
            return
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # noqa: SLF001 - the only kernel that torch has for doing nothing
        self.stages.append(stage)
        self._full = len(self.stages) > 1 and stage is Stage.OTHER


def of_capture(config: RunConfig, data: DeviceData) -> tuple[Recording | None, str]:
    """One step's stages, and how they were attributed; no recording where neither way works."""
    said = ""
    for way, how in ((_by_events, HOW[ReplayRecorder]), (_by_markers, BY_MARKERS)):
        try:
            return way(config, data), how
        except UsageError:
            raise
        except (RuntimeError, ValueError) as error:
            if out_of_memory(error) is not None:
                raise
            said = first_line(error)
    return None, f"the stages of this captured step could not be told apart: {said}"


def _by_events(config: RunConfig, data: DeviceData) -> Recording:
    recorder = ReplayRecorder()
    with running(config, data, mark=recorder) as found:
        found.steps(SETTLE)
        seen = []
        for _ in range(REPLAYS):
            found.steps(_in_a_row(found))
            seen.append(recorder.stop())
    whole = merged(seen)
    mean = {stage: seconds / len(seen) for stage, seconds in whole.seconds.items()}
    return Recording(mean, whole.spans)


def _by_markers(config: RunConfig, data: DeviceData) -> Recording:
    recorder = MarkerRecorder()
    with running(config, data, mark=recorder) as found:
        found.steps(SETTLE)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            found.steps(1)
        events = [event for event in traced.events() if is_kernel(event)]
    kernels = [
        (event.name, event.time_range.start / 1e6, event.time_range.end / 1e6) for event in events
    ]
    return between_markers(kernels, recorder.stages)


def between_markers(
    kernels: Sequence[tuple[str, float, float]], stages: Sequence[Stage]
) -> Recording:
    """The stages of a replay.

    Args:
        kernels: name, start and end in seconds, of a trace in which the step was replayed once.
        stages: of the markers, in their order; the first only begins.

    Raises:
        ValueError: the trace has not as many markers.
    """
    ends = sorted(end for name, _, end in kernels if MARKER in name)
    if len(ends) != len(stages) or not ends:
        raise ValueError(f"the trace shows {len(ends)} markers of {len(stages)}")
    pairs = zip(stages[1:], ends[1:], strict=True)
    return recording([(stage, end - ends[0]) for stage, end in pairs])


def _in_a_row(found: Running) -> int:
    """Full batches only: the last one may be short, and is another graph."""
    return max(1, min(IN_A_ROW, found.n_windows // found.batch_size))


ROUNDS = 3
"""Recorded and unrecorded steps take turns: what else the machine does meets both."""

TURNS = 5
"""Of a candidate, and of what it is compared with."""


"""Steps before anything is timed."""

PASSES = 3
"""Of validation, and of what lies between epochs, one after each of the first turns: their median.
"""

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
    return guarded(lambda: _measured(config, data, steps, began))


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

    def paced() -> tuple[Paced, Paced | None]:
        mine, others = _Turns(), _Turns()
        with running(config, data, patch=patch) as found:
            found.steps(SETTLE)
            for turn in range(TURNS):
                mine.take(found, max(1, steps // TURNS), whole=turn < PASSES)
                if beside is not None:
                    others.take(beside, max(1, steps // TURNS), whole=turn < PASSES)
            return _paced(found, mine), None if beside is None else _paced(beside, others)

    return guarded(paced)


def guarded(work: Callable[[], _Result]) -> _Result:
    """Memory that runs out becomes a `NoMemoryError`, once all that held it is gone."""
    try:
        return work()
    except Exception as error:
        if (reason := out_of_memory(error)) is None:
            raise
        said, lost = first_line(reason), lost_context(error)
        del reason
    gc.collect()  # only out here are the frames gone, and with them what they held
    if torch.cuda.is_available() and not lost:
        torch.cuda.empty_cache()
    raise NoMemoryError(said)


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


def _measured(
    config: RunConfig, data: DeviceData, steps: int, began: Callable[[Running, float], None]
) -> Measured:
    device = data.minimum.device
    with running(config, data) as found:
        began(found, found.steps(SETTLE).seconds / SETTLE)
        # The longest stretch comes first: a throughput that falls is seen from its start.
        first = found.steps(steps, ticking=True)
        captured = found.captured
        turns = _Turns([first])
        seen = _in_turns(found, turns, max(1, steps // ROUNDS), record=not captured)
        paced = _paced(found, turns)
    recorded = merged(seen) if seen else None
    how = HOW[type(recorder_for(device, captured=False))]
    n_recorded = len(seen) * max(1, steps // ROUNDS)
    if captured:
        recorded, how = of_capture(config, data)
        n_recorded = 1
    stages = _stages(recorded, n_recorded, paced.pace, how=how, captured=captured)
    return Measured(paced, stages, first.ticks, first.steps)


def _in_turns(found: Running, turns: _Turns, steps: int, *, record: bool) -> list[Recording]:
    """Unrecorded stretches go to the turns; recorded ones between them come back."""
    recorder = recorder_for(found.device, captured=False)
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
