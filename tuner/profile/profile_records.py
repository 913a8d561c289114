"""What a profile consists of: plain records, in seconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.profile.recorders import Span
from tuner.training.stage_marks import Stage


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


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to change, and what it gave."""

    change: str
    """What to do, as an order."""
    why: str
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

    @property
    def helps(self) -> bool:
        return self.gain is not None and self.gain >= LEAST_GAIN


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
