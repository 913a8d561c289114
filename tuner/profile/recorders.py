"""What takes the place of `stage_marks.unmarked`: it adds up what each stage takes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from tuner.training.stage_marks import Stage

MOST_SPANS = 400
"""Kept for the timeline: some forty steps."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one stage, in seconds after the first one of the recording began."""

    stage: Stage
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Recording:
    """What a recorder saw between `start` and `stop`."""

    seconds: Mapping[Stage, float]
    spans: tuple[Span, ...]

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


class Recorder(Protocol):
    """A `Mark` that is told when a recording begins and ends."""

    def __call__(self, stage: Stage) -> None:
        """What came since the last call is this stage's."""

    def start(self) -> None:
        """From now on; the device is idle."""

    def stop(self) -> Recording:
        """Up to the last call; waits for the device."""


class HostRecorder:
    """By the host's clock: where each operation is over when its call returns."""

    def __init__(self) -> None:
        self._marks: list[tuple[Stage, float]] = []
        self._began = 0.0

    def __call__(self, stage: Stage) -> None:
        self._marks.append((stage, time.perf_counter()))

    def start(self) -> None:
        self._marks = []
        self._began = time.perf_counter()

    def stop(self) -> Recording:
        return recording([(stage, at - self._began) for stage, at in self._marks])


class EventRecorder:
    """By the device's clock: an event at each boundary, recorded without waiting.

    Where the device waits for the host between two events, that is the time of their stage: so
    all stages together are the whole time.
    """

    def __init__(self) -> None:
        self._spare: list[torch.cuda.Event] = []
        self._marks: list[tuple[Stage, torch.cuda.Event]] = []
        self._first: torch.cuda.Event | None = None

    def __call__(self, stage: Stage) -> None:
        event = self._event()
        event.record()
        self._marks.append((stage, event))

    def start(self) -> None:
        self._spare += [event for _, event in self._marks]
        self._marks = []
        self._first = self._event()
        self._first.record()

    def stop(self) -> Recording:
        assert self._first is not None, "it was started"
        torch.cuda.synchronize()
        first = self._first
        return recording([(s, first.elapsed_time(event) / 1000) for s, event in self._marks])

    def _event(self) -> torch.cuda.Event:
        if self._spare:
            return self._spare.pop()
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class ReplayRecorder:
    """By the device's clock, within a captured step: events that are nodes of its graph.

    Each replay stamps them anew, so the last replay before `stop` is what is read. Marks outside of
    a capture, and those of any capture but the first (the full batch), are not recorded.
    """

    def __init__(self) -> None:
        self._marks: list[tuple[Stage, Any]] = []
        self._full = False

    def __call__(self, stage: Stage) -> None:
        if self._full or not torch.cuda.is_current_stream_capturing():
            return
        event = torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append((stage, event))
        # A captured step begins and ends with this stage.
        self._full = len(self._marks) > 1 and stage is Stage.OTHER

    def start(self) -> None:
        """Nothing: replays stamp by themselves."""

    def stop(self) -> Recording:
        torch.cuda.synchronize()
        (_, first), *rest = self._marks
        return recording([(s, first.elapsed_time(event) / 1000) for s, event in rest])


def recording(ends: list[tuple[Stage, float]]) -> Recording:
    """From where each stretch ends, in seconds after the first began."""
    seconds: dict[Stage, float] = defaultdict(float)
    spans: list[Span] = []
    before = 0.0
    for stage, at in ends:
        seconds[stage] += at - before
        if len(spans) < MOST_SPANS:
            spans.append(Span(stage, before, at))
        before = at
    return Recording(dict(seconds), tuple(spans))


def recorder_for(device: torch.device, *, captured: bool) -> Recorder:
    """The one that suits how steps run there."""
    if device.type != "cuda":
        return HostRecorder()
    return ReplayRecorder() if captured else EventRecorder()


HOW: Mapping[type, str] = {
    HostRecorder: "by the host's clock at the boundaries of each stage",
    EventRecorder: (
        "by events on the GPU's own clock at the boundaries of each stage; where the GPU waits for "
        "the host, that counts into the stage"
    ),
    ReplayRecorder: (
        "the step is one captured graph: by timing events that are nodes of it, which each replay "
        "stamps; what branches do side by side counts into the stage that waits for them"
    ),
}
"""How a recorder attributes time, in words."""


def merged(recordings: Sequence[Recording]) -> Recording:
    """Their seconds added up; the spans are the last one's."""
    seconds: dict[Stage, float] = defaultdict(float)
    for each in recordings:
        for stage, took in each.seconds.items():
            seconds[stage] += took
    return Recording(dict(seconds), recordings[-1].spans)
