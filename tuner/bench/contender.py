"""What takes part in a bench: it sets up the job anew, trains epochs of it, and says how long. And
the bench itself: everyone's first contact, then turns in rounds, then the looks inside.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tuner.config import Precision, RunConfig
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.devices.watch import NVML_PERIOD_S, BusyMeter
from tuner.errors import UsageError, first_line
from tuner.estimate.driven import give_back
from tuner.models.fault import out_of_memory
from tuner.trial.job import lost_context


class Scope(StrEnum):
    """What a contender's epoch consists of."""

    EPOCH = "training and validation"
    STEPS = "training steps only, without validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job every contender does, and where."""

    prepared: PreparedData
    device: torch.device
    precision: Precision
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Who takes part, with which sizes; the text parts go into the results as they are."""

    library: str
    variant: str
    backend: str
    hidden_size: int | None
    """None of a network that has no such size."""
    batch_size: int
    scope: Scope = Scope.EPOCH
    note: str = ""
    rung: str = ""
    """On a ladder: which one, in words."""

    @staticmethod
    def of(config: RunConfig, library: str, variant: str, backend: str = "", **more: Any) -> Entry:
        """Of this configuration, whose sizes it has."""
        sizes = config.hyperparameters
        return Entry(
            library=library,
            variant=variant,
            backend=backend,
            hidden_size=sizes.hidden_size,
            batch_size=sizes.batch_size,
            **more,
        )

    @property
    def name(self) -> str:
        parts = (self.library, self.variant, self.backend, self.rung)
        return " ".join(part for part in parts if part)

    @property
    def label(self) -> str:
        return f"{self.name}, {sizes(self.hidden_size, self.batch_size)}"


def sizes(hidden_size: int | None, batch_size: int) -> str:
    """`hidden 64, batch 256`."""
    hidden = () if hidden_size is None else (f"hidden {hidden_size}",)
    return ", ".join((*hidden, f"batch {batch_size}"))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One counted epoch: `seconds` of the entry's scope, `step_s` of a step's training alone."""

    seconds: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn: set up from nothing, one epoch that settles and does not count, then epochs.

    `counted` are the readings of `time.perf_counter` around the counted epochs. `peak_memory_bytes`
    is the most device memory that this contender held in its turn, its data included; None on a
    CPU.
    """

    setup_s: float
    epochs: tuple[Epoch, ...]
    counted: tuple[float, float]
    peak_memory_bytes: int | None
    n_parameters: int
    n_windows: int
    n_steps: int


class Contender(Protocol):
    """One row of the results. Every turn starts from nothing and leaves nothing on the device."""

    @property
    def entry(self) -> Entry:
        """Who this is."""

    def run(self, epochs: int) -> Round:
        """One turn with so many counted epochs; the device is idle whenever the clock is read."""

    def kernels_per_step(self) -> int | None:
        """CUDA kernels that one training step launches, without copies and fills; None on a CPU."""


def torch_device(device: Gpu | CpuCores) -> torch.device:
    """The device as torch names it where it is the only one; on a CPU, torch keeps to its cores."""
    if isinstance(device, Gpu):
        return torch.device("cuda:0")
    torch.set_num_threads(len(device.cores))
    return torch.device("cpu")


class DeviceMemory:
    """The most memory allocated on a device since this was made, beyond what was there before.

    What others left is given back first: given back in the middle of a turn, it would be taken off
    that turn's figure, and collected on its clock. So this is made before a turn's first reading of
    the clock. It is what lies in reference cycles, and the workspaces that cuBLAS keeps for every
    stream it has ever seen, a quarter of a gigabyte after captured graphs: Lightning gives these
    back when a training of its own begins and ends.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu, self._before = device.type == "cuda", 0
        clear_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)  # noqa: SLF001 - no public way
        if self._on_gpu and clear_workspaces is not None:
            torch.cuda.synchronize(device)
            clear_workspaces()
        give_back()
        if self._on_gpu:
            self._before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        self._device = device

    def peak(self) -> int | None:
        return (
            torch.cuda.max_memory_allocated(self._device) - self._before if self._on_gpu else None
        )


# What the turns of a contender came to.


@dataclass(slots=True)
class Measurement:
    """What one contender's turns came to; `failure` is why it dropped out, or empty."""

    entry: Entry
    cold_setup_s: float | None = None
    rounds: list[Round] = field(default_factory=list)
    kernels_per_step: int | None = None
    gpu_utilisation: float | None = None
    failure: str = ""


# How many CUDA kernels a piece of work launches, those inside a replayed graph counted too.


_NOT_KERNELS = ("Memcpy", "Memset")


def is_kernel(event: Any) -> bool:
    """Whether a profiler's event is a kernel: on the device, and no copy, fill or annotation."""
    on_device = event.device_type == DeviceType.CUDA
    return on_device and not event.is_user_annotation and not event.name.startswith(_NOT_KERNELS)


class KernelCount:
    """Counts from when it is made to `stop`."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._profile = device, profile(activities=[ProfilerActivity.CUDA])
        torch.cuda.synchronize(device)
        self._profile.start()

    def stop(self) -> int:
        torch.cuda.synchronize(self._device)
        self._profile.stop()
        events = self._profile.events()  # type: ignore[no-untyped-call]
        return sum(is_kernel(event) for event in events)


def count_kernels(device: torch.device, work: Callable[[], object]) -> int:
    """Kernels that `work` launches on the device."""
    counting = KernelCount(device)
    work()
    return counting.stop()


def per_step(count: Callable[[int], int], steps: int) -> int:
    """Kernels of one step, from runs of several: what an epoch's beginning adds cancels out.

    Args:
        count: the kernels of a run of so many steps.
        steps: at most so many, all of the same kind; where there is but one, its run's own extras
            are in the figure.
    """
    if steps == 1:
        return count(1)
    more = min(steps, 3)
    return round((count(more) - count(1)) / (more - 1))


# The bench itself.


# How busy the GPU is while a contender trains, as NVML says it.


INTERVAL_S = 0.1
"""Between two readings."""


def median_within(
    samples: Sequence[tuple[float, int]], window: tuple[float, float]
) -> float | None:
    """The median in per cent between two readings of `perf_counter`; None where NVML was silent.

    Samples early in the window still speak of the time before: left out while others remain.
    """
    first, last = window
    inside = [used for at, used in samples if first <= at <= last]
    settled = [used for at, used in samples if first + NVML_PERIOD_S <= at <= last]
    return statistics.median(settled or inside) if inside else None


WATCHED_S = 3.0
"""How long a contender trains while the GPU's utilisation is read."""


def run_bench(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    epochs: int,
    gpu: Gpu | None,
    announce: Callable[[str], None],
    after_round: Callable[[Sequence[Measurement], int], None] = lambda _measurements, _number: None,
) -> list[Measurement]:
    """Measure all contenders in one run: in each round everyone has a turn, in the same order.

    The first contact is apart: its set-up is the cold one, its epochs are thrown away. Kernels and
    utilisation are looked at last, for a profiler once started may slow what comes after it. Who
    fails drops out with its reason, and takes the unmeasured along where the device is lost.

    Args:
        contenders: in their order.
        rounds: how many counted turns each has.
        epochs: counted epochs in a turn.
        gpu: whose utilisation is read; None on a CPU.
        announce: told in one line how it is going.
        after_round: called after every round, between turns, with all measurements so far and the
            round's number.

    Raises:
        UsageError: misuse, which ends the bench.
    """
    if rounds < 1 or epochs < 1:
        raise UsageError(f"--rounds {rounds}, --epochs {epochs}: both must be at least 1")
    measurements = [Measurement(contender.entry) for contender in contenders]

    def contact(contender: Contender, measured: Measurement) -> str:
        measured.cold_setup_s = contender.run(1).setup_s
        return f"set up in {measured.cold_setup_s:.2f} s"

    def turn(contender: Contender, measured: Measurement) -> str:
        measured.rounds.append(contender.run(epochs))
        return f"{_usual_s(measured.rounds[-1:]):.4f} s/epoch"

    def lacks(measured: Measurement) -> bool:
        seen = gpu is None or measured.kernels_per_step is not None
        return len(measured.rounds) < rounds or not seen

    pairs = list(zip(contenders, measurements, strict=True))
    everyone = partial(_everyone, pairs, announce=announce, lacks=lacks)
    everyone("first contact", contact)
    for number in range(1, rounds + 1):
        if everyone(f"round {number} of {rounds}", turn):
            after_round(measurements, number)
    if gpu is not None:
        everyone("a look inside", partial(_look_inside, gpu))
    return measurements


_Work = Callable[[Contender, Measurement], str]
"""Measures a contender, and says in one line how it went."""


def _everyone(
    pairs: Sequence[tuple[Contender, Measurement]],
    title: str,
    work: _Work,
    *,
    announce: Callable[[str], None],
    lacks: Callable[[Measurement], bool],
) -> bool:
    """Who still takes part; True when there was anyone."""
    anyone = not all(each.failure for _, each in pairs)
    for contender, measured in pairs:
        if measured.failure:
            continue
        label = contender.entry.label
        usable, outcome = _attempt(contender, measured, work)
        announce(f"{title}: {label}: {measured.failure or outcome}")
        for _, other in pairs if not usable else ():
            if lacks(other):
                other.failure = other.failure or f"{label} left the device unusable"
    return anyone


def _look_inside(gpu: Gpu, contender: Contender, measured: Measurement) -> str:
    with BusyMeter(gpu, INTERVAL_S) as meter:
        meter.clock_runs(True)
        watched = contender.run(math.ceil(WATCHED_S / _usual_s(measured.rounds)))
    measured.gpu_utilisation = median_within(meter.readings, watched.counted)
    measured.kernels_per_step = contender.kernels_per_step()
    return f"{measured.kernels_per_step} kernels a step, GPU {measured.gpu_utilisation} % busy"


def _usual_s(rounds: Sequence[Round]) -> float:
    return statistics.median(epoch.seconds for turn in rounds for epoch in turn.epochs)


def _attempt(contender: Contender, measured: Measurement, work: _Work) -> tuple[bool, str]:
    """Whether those after it can use the device, and how it went in one line where it did not fail.

    Misuse ends the bench; any other failure is this contender's own and becomes its result.
    """
    usable, outcome = True, ""
    try:
        outcome = work(contender, measured)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in the contender's row
        measured.failure, full = reason_of(error), out_of_memory(error)
        # Memory may run out without harm to others: unless a capture was cut short.
        usable = not lost_context(error) if full is None else full is error
    if usable:
        try:  # out here the failed frames are gone, with what they held
            give_back()
        except RuntimeError as lost:
            measured.failure, usable = measured.failure or reason_of(lost), False
    return usable, outcome


def reason_of(error: Exception) -> str:
    """One line: `out of memory: …`, or the kind of error and the first line of what it says."""
    if (reason := out_of_memory(error)) is not None:
        return f"out of memory: {first_line(reason)}"
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"
