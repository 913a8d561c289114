"""What a profile consists of: how stages are recorded, plain records in seconds and bytes, and what
is named first.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tuner.devices import Watch
from tuner.training.stage_marks import Stage

# What takes the place of `stage_marks.unmarked`: it adds up what each stage takes.


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


def moment(device: torch.device) -> Any:
    """Now, by the device's own clock, without waiting: for `seconds_between`."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(before: Any, after: Any) -> float:
    """From one moment to another, both of which the device has passed."""
    if isinstance(before, float):
        return float(after - before)
    return float(before.elapsed_time(after)) / 1000


class Recorder:
    """A `Mark` by the device's own clock: a moment at each boundary, noted without waiting.

    Where a GPU waits for the host between two moments, that is the time of their stage: so all
    stages together are the whole time.

    Args:
        device: whose clock counts.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[tuple[Stage, Any]] = []
        self._first: Any = None

    def __call__(self, stage: Stage) -> None:
        """What came since the last call is this stage's."""
        self._marks.append((stage, moment(self._device)))

    def start(self) -> None:
        """From now on; the device is idle."""
        self._marks = []
        self._first = moment(self._device)

    def stop(self) -> Recording:
        """Up to the last call; waits for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        return recording([(stage, seconds_between(self._first, at)) for stage, at in self._marks])


class ReplayRecorder:
    """By the device's clock, within a captured step: events that are nodes of its graph.

    Each replay stamps them anew, so the last replay before `stop` is what is read. Marks outside of
    a capture, and those of any capture but the first (the full batch), are not recorded.
    """

    def __init__(self) -> None:
        self.marks: list[tuple[Stage, Any]] = []
        self._full = False

    def __call__(self, stage: Stage) -> None:
        if self._full or not torch.cuda.is_current_stream_capturing():
            return
        event = torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]
        event.record()
        self.marks.append((stage, event))
        # A captured step begins and ends with this stage.
        self._full = len(self.marks) > 1 and stage is Stage.OTHER

    def stop(self) -> Recording:
        torch.cuda.synchronize()
        (_, first), *rest = self.marks
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


BY_HOST = "by the host's clock at the boundaries of each stage"
BY_EVENTS = (
    "by events on the GPU's own clock at the boundaries of each stage; where the GPU waits for "
    "the host, that counts into the stage"
)
BY_REPLAY = (
    "the step is one captured graph: by timing events that are nodes of it, which each replay "
    "stamps; what branches do side by side counts into the stage that waits for them"
)


def how_recorded(device: torch.device) -> str:
    """How a `Recorder` attributes time there, in words."""
    return BY_EVENTS if device.type == "cuda" else BY_HOST


def merged(recordings: Sequence[Recording]) -> Recording:
    """Their seconds added up; the spans are the last one's. Empty where there are none."""
    seconds: dict[Stage, float] = defaultdict(float)
    for each in recordings:
        for stage, took in each.seconds.items():
            seconds[stage] += took
    return Recording(dict(seconds), recordings[-1].spans if recordings else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Where an epoch's time goes."""

    seconds: Mapping[Stage, float]
    """Of each stage, in an epoch that nobody recorded: their sum is that epoch."""
    how: str
    """How time was attributed."""
    difference: float
    """By how much a recorded step took longer than one that was not, as a share of the latter."""
    spans: tuple[Span, ...] = ()
    """Of some recorded steps, for a timeline."""

    @property
    def epoch_s(self) -> float:
        return sum(self.seconds.values())

    def share(self, *stages: Stage) -> float:
        """Of the epoch."""
        whole = self.epoch_s
        return sum(self.seconds.get(stage, 0.0) for stage in stages) / whole if whole else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it trains."""

    batch_size: int
    windows: int
    """Of an epoch; 0 where nobody knows how long one is."""
    step_s: float
    epoch_s: float
    """With validation, as often as it comes, and what lies between epochs."""
    validation_s: float = 0.0
    """A whole pass."""
    between_s: float = 0.0
    setup_s: float = 0.0
    backend: str = ""
    """What ran, where it is a training of ours."""
    fallback: str = ""
    """Why that and not the backend that was asked for; empty where it is that one."""

    @property
    def window_s(self) -> float:
        """Seconds of an epoch per window: what is compared."""
        return self.epoch_s / self.windows if self.windows else self.step_s / self.batch_size

    @property
    def windows_per_s(self) -> float:
        """In training steps alone, of which an epoch's last one may have fewer windows."""
        if not self.step_s:
            return 0.0
        steps = math.ceil(self.windows / self.batch_size) if self.windows else 1
        return (self.windows or self.batch_size) / (steps * self.step_s)


def stages_of(
    recorded: Recording, steps: int, pace: Pace, *, how: str, captured: bool = False
) -> Stages:
    """Of an epoch that nobody recorded: the stages of so many steps, in the shares that were
    recorded. A validation among them came as often as it did just then: `pace` knows how often.

    Between two replays the GPU waits for the next launch, which no event in a graph sees: where the
    recorded stages of a captured step are less than its time, the rest is `other`.
    """
    rest = {Stage.VALIDATION: pace.validation_s, Stage.BETWEEN: pace.between_s}
    rest = {stage: took for stage, took in rest.items() if took}
    training_s = pace.epoch_s - sum(rest.values())
    parts = {stage: took / max(steps, 1) for stage, took in recorded.seconds.items()}
    parts.pop(Stage.VALIDATION, None)
    recorded_s = sum(parts.values())
    if not recorded_s or not steps:
        return Stages(seconds={Stage.OTHER: training_s} | rest, how=how, difference=0.0)
    difference = recorded_s / pace.step_s - 1
    if captured and difference < 0:
        parts[Stage.OTHER] = parts.get(Stage.OTHER, 0.0) + pace.step_s - recorded_s
    whole = sum(parts.values())
    seconds = {stage: took / whole * training_s for stage, took in parts.items()} | rest
    in_order = {stage: seconds[stage] for stage in Stage if stage in seconds}
    return Stages(seconds=in_order, how=how, difference=difference, spans=recorded.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kind of operation or kernel."""

    name: str
    calls: float
    """A step."""
    seconds: float
    """A step, without what it calls in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What a step launches."""

    top: tuple[Operation, ...] = ()
    kernels: float | None = None
    """CUDA kernels a step; None on a CPU."""
    kernel_s: float | None = None
    """A step, all kernels together; None on a CPU."""
    tensor_cores: float | None = None
    """Share of the products' time in kernels that use them; None on a CPU or without products."""
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """How busy the machine was in the timed steps, in per cent."""

    gpu: float | None = None
    """As NVML says it; None where it says nothing."""
    process: float | None = None
    """Of one core: 200 is two cores' worth."""
    cores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AtBatch:
    """Memory and time at one batch size."""

    batch_size: int
    peak_bytes: int | None
    """Of the device; on a CPU the most the process ever took. None where it did not run."""
    step_s: float | None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Throughput from start to end."""

    seconds: tuple[float, ...] = ()
    """A step's, the mean of each of as many equal stretches."""
    fall: float = 0.0
    """How much slower the end is than the beginning, as a share of the beginning's throughput."""
    falls: bool = False
    growth_s: float = 0.0
    """By which each step takes longer than the one before; 0 where it does not fall."""
    steps: int = 0


SAME, ROUNDED, ANOTHER = "same bits", "other rounding", "another training"
"""Groups of changes, by what becomes of the training's result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What a change came to, and with all before it that help: throughput in samples a second."""

    group: str
    place: int = 0
    """Among those that were tried, the first is 1; 0 of one that was not."""
    samples_per_s: float | None = None
    """None where it did not run."""
    together_per_s: float | None = None
    """None where it is not one of those that are kept."""
    gpu: float | None = None
    cpu: float | None = None
    """All cores together, in per cent, as `gpu`."""
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to change, and what it gave."""

    change: str
    """What to do, as an order."""
    why: str = ""
    """What was seen."""
    fault: bool = False
    """Seen in the training itself, and no choice of settings."""
    gain: float | None = None
    """Seconds an epoch per window, before by after; None where it was not tried."""
    epoch_s: float | None = None
    """Foretold; None where it was not tried."""
    mathematics: str = ""
    """How it changes what is computed; empty where it does not."""
    outcome: str = ""
    """Why it was not tried, or what came instead of a gain."""
    rung: Rung | None = None
    """Of a change of somebody else's training, which is one of a ladder of them."""

    @property
    def helps(self) -> bool:
        return self.gain is not None and self.gain >= LEAST_GAIN

    @property
    def to_repair(self) -> bool:
        """Whether it is a fault whose remedy helps, or could not be timed."""
        return self.fault and (self.gain is None or self.helps)


LEAST_GAIN = 1.03
"""Less is no gain: two timings of the same differ by that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that was found."""

    subject: str
    device: str
    settings: Mapping[str, object]
    pace: Pace
    stages: Stages
    trend: Trend = field(default_factory=Trend)
    operations: Operations = field(default_factory=Operations)
    busy: Busy = field(default_factory=Busy)
    memory: tuple[AtBatch, ...] = ()
    bottleneck: str = ""
    advice: tuple[Advice, ...] = ()
    contamination: str = ""
    """Why the timings are not to be trusted; empty where they are."""
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """What has not been measured, or not to its end, of those below: it goes on, or was stopped."""


OPERATIONS, MEMORY, ADVICE = "what a step launches", "memory against batch size", "advice"


# What is named first: the order of advice, and the bottleneck in one sentence.


# Whether throughput falls while nothing about the work should change.


LEAST_FALL = 0.15
"""Of the throughput at the beginning: less is what machines do."""

CERTAIN = 0.005
"""Largest p of Kendall's test against no trend: stretches that differ at random have none."""

FEWEST = 10
"""Stretches, without which nothing is said."""


SETTLE = 8
"""Steps before the first that is timed."""


def trend_of(ticks: Sequence[float], steps: int) -> Trend:
    """Of seconds a step, from start to end.

    Args:
        ticks: the mean of each of equal stretches.
        steps: all of them together.

    Source: Kendall's rank correlation with time, and the Theil-Sen slope, which one slow stretch
    does not move.
    """
    plain = Trend(seconds=tuple(ticks), steps=steps)
    if len(ticks) < FEWEST:
        return plain
    from scipy.stats import kendalltau, theilslopes

    part = max(2, len(ticks) // 5)
    begin, end = statistics.median(ticks[:part]), statistics.median(ticks[-part:])
    fall = 1 - begin / end if end > 0 else 0.0
    found = kendalltau(range(len(ticks)), ticks)
    falls = bool(fall >= LEAST_FALL and found.statistic > 0 and found.pvalue <= CERTAIN)
    slope = float(theilslopes(ticks).slope) / (steps / len(ticks)) if falls else 0.0
    return replace(plain, fall=max(0.0, fall), falls=falls, growth_s=slope)


def without_the_fall(trend: Trend, steps: int) -> tuple[float, float]:
    """Seconds that so many steps take from the start as they are, and at the first step's pace."""
    ticks = trend.seconds
    part = max(2, len(ticks) // 5)
    begin = statistics.median(ticks[:part])
    # From the beginning, not from the middle: what the slope is off counts for fewer steps.
    before = trend.steps * part / len(ticks) / 2 + SETTLE
    first = max(begin - trend.growth_s * before, begin * 0.01)
    return steps * first + trend.growth_s * steps**2 / 2, steps * first


BETWEEN = "What lies between the stages, the loop itself,"

WAITING = 0.5
"""Of a step without a kernel on the GPU: then it waits for the host."""


Tell = Callable[[Profile], None]
"""Gets a profile each time that more of it is measured: whoever stops it keeps what there is."""


def silent(_profile: Profile) -> None:
    """Of a profile that nobody waits for."""


def told(now: Profile, watch: Watch, tell: Tell) -> Profile:
    """As far as it is measured: with what follows from that."""
    order = ranked(now.advice)
    found = replace(
        now,
        advice=order,
        bottleneck=bottleneck(order, now.stages, now.operations, now.pace),
        contamination=watch.finish().why,
    )
    tell(found)
    return found


def ranked(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Faults of the code first, then settings, each by what they give; then what gives nothing.

    A fault is there to be repaired; a setting that changes the mathematics is a choice, also where
    it gives more. A fault whose remedy could not be timed here stands with the faults; one whose
    remedy was timed and gives nothing stands with what gives nothing.
    """

    def place(each: Advice) -> tuple[bool, bool, float]:
        later = not each.to_repair or bool(each.mathematics)
        return later, not each.helps, -(each.gain or 0.0)

    return tuple(sorted(advice, key=place))


def bottleneck(advice: Sequence[Advice], stages: Stages, operations: Operations, pace: Pace) -> str:
    """One sentence: what is wrong, or else what takes the time."""
    first = advice[0] if advice else None
    if first is not None and first.to_repair:
        gain = f", for {first.gain:.2f} times the speed" if first.gain is not None else ""
        return f"{first.why[:1].upper()}{first.why[1:]}: {first.change}{gain}."
    waits = waiting_share(operations, pace)
    if waits is not None and waits >= WAITING:
        return f"The GPU has nothing to do in {waits:.0%} of a step: it waits for the host."
    longest = max(stages.seconds, key=lambda stage: stages.seconds[stage], default=Stage.OTHER)
    name = BETWEEN if longest is Stage.OTHER else longest.value.capitalize()
    said = f"{name} takes {stages.share(longest):.0%} of an epoch"
    if first is not None and first.helps:
        return f"{said}; {first.change} helps most, for {first.gain:.2f} times the speed."
    tried = any(each.gain is not None for each in advice)
    return f"{said}, and nothing that was tried helps." if tried else f"{said}."


def waiting_share(operations: Operations, pace: Pace) -> float | None:
    """Of a step on a GPU, in which no kernel runs; None on a CPU."""
    if operations.kernel_s is None or not pace.step_s:
        return None
    return max(0.0, 1 - operations.kernel_s / pace.step_s)


def of_falling(trend: Trend, epoch_steps: int) -> Advice | None:
    """The fault that throughput falls; None where it does not."""
    if not trend.falls:
        return None

    falling_s, steady_s = without_the_fall(trend, epoch_steps or trend.steps)
    gain = falling_s / steady_s
    return Advice(
        change="find what grows from step to step: a list, a graph that is kept, a log, a cache",
        why=f"throughput falls by {trend.fall:.0%} within {trend.steps} steps",
        fault=True,
        gain=max(gain, LEAST_GAIN),
        epoch_s=steady_s,
        outcome="reckoned from the first steps' pace, for the first epoch",
    )


def of_no_number(steps: int) -> Advice:
    """The fault that the loss is none any more."""
    return Advice(
        change="lower the learning rate, clip gradients, or scale the loss under fp16",
        why=f"the loss is no finite number within {steps} steps",
        fault=True,
    )
