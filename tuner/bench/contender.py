"""What takes part in a bench: it sets up the job anew, trains epochs of it, and says how long. And
the bench itself: everyone's first contact, then turns in rounds, then the looks inside.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tuner.config import Precision, RunConfig
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.devices.watch import NVML_PERIOD_S, BusyMeter
from tuner.errors import UsageError, first_line
from tuner.models.fault import out_of_memory
from tuner.training.clock import synchronizer
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


def trained_with(config: RunConfig, **changes: object) -> RunConfig:
    """The same configuration with other settings of training."""
    return replace(config, training=config.training.but(**changes))


def with_batch(config: RunConfig, batch_size: int) -> RunConfig:
    """The same configuration with another batch."""
    return replace(config, hyperparameters=replace(config.hyperparameters, batch_size=batch_size))


def torch_device(device: Gpu | CpuCores) -> torch.device:
    """The device as torch names it where it is the only one; on a CPU, torch keeps to its cores."""
    if isinstance(device, Gpu):
        return torch.device("cuda:0")
    torch.set_num_threads(len(device.cores))
    return torch.device("cpu")


class DeviceMemory:
    """The most memory allocated on a device since this was made, beyond what was there before.

    What others left is given back first (`release_leftovers`): given back in the middle of a turn,
    it would be taken off that turn's figure, and collected on its clock. So this is made before a
    turn's first reading of the clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        release_leftovers(device)
        if device.type == "cuda":
            self._before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)

    def peak(self) -> int | None:
        if self._device.type != "cuda":
            return None
        return torch.cuda.max_memory_allocated(self._device) - self._before


def release_leftovers(device: torch.device) -> None:
    """Give back what is on the device and belongs to nobody any more.

    That is what lies in reference cycles, and the workspaces that cuBLAS keeps for every stream it
    has ever seen, a quarter of a gigabyte after captured graphs: Lightning gives these back when a
    training of its own begins and ends.
    """
    gc.collect()
    if device.type != "cuda":
        return
    torch.cuda.synchronize(device)
    if (clear_workspaces := getattr(torch._C, "_cuda_clearCublasWorkspaces", None)) is not None:  # noqa: SLF001 - no public way
        clear_workspaces()
    torch.cuda.empty_cache()


def reader(device: torch.device) -> Callable[[], float]:
    """A clock that is read when the device has finished everything asked of it; seconds."""
    synchronize = synchronizer(device)

    def read() -> float:
        synchronize()
        return time.perf_counter()

    return read


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
    bench = _Bench(contenders, measurements, rounds, epochs, gpu, announce)
    bench.first_contact()
    for number in range(1, rounds + 1):
        if bench.round(number):
            after_round(measurements, number)
    bench.look_inside()
    return measurements


_Work = Callable[[Contender, Measurement], str]
"""Measures a contender, and says in one line how it went."""


@dataclass(frozen=True, slots=True)
class _Bench:
    contenders: Sequence[Contender]
    measurements: list[Measurement]
    rounds: int
    epochs: int
    gpu: Gpu | None
    announce: Callable[[str], None]

    def first_contact(self) -> None:
        def contact(contender: Contender, measured: Measurement) -> str:
            measured.cold_setup_s = contender.run(1).setup_s
            return f"set up in {measured.cold_setup_s:.2f} s"

        self._all("first contact", contact)

    def round(self, number: int) -> bool:
        """True when anyone had a turn."""

        def turn(contender: Contender, measured: Measurement) -> str:
            measured.rounds.append(contender.run(self.epochs))
            usual = statistics.median(epoch.seconds for epoch in measured.rounds[-1].epochs)
            return f"{usual:.4f} s/epoch"

        return self._all(f"round {number} of {self.rounds}", turn)

    def look_inside(self) -> None:
        if (gpu := self.gpu) is None:
            return

        def look(contender: Contender, measured: Measurement) -> str:
            usual = statistics.median(
                epoch.seconds for turn in measured.rounds for epoch in turn.epochs
            )
            with BusyMeter(gpu, INTERVAL_S) as meter:
                meter.clock_runs(True)
                watched = contender.run(math.ceil(WATCHED_S / usual))
            measured.gpu_utilisation = median_within(meter.readings, watched.counted)
            measured.kernels_per_step = contender.kernels_per_step()
            return (
                f"{measured.kernels_per_step} kernels a step, GPU {measured.gpu_utilisation} % busy"
            )

        self._all("a look inside", look)

    def _all(self, title: str, work: _Work) -> bool:
        """Everyone who still takes part; True when there was anyone."""
        anyone = not all(each.failure for each in self.measurements)
        for contender, measured in zip(self.contenders, self.measurements, strict=True):
            if measured.failure:
                continue
            label = contender.entry.label
            usable, outcome = _attempt(contender, measured, work)
            self.announce(f"{title}: {label}: {measured.failure or outcome}")
            for other in self.measurements if not usable else ():
                if self._lacks(other):
                    other.failure = other.failure or f"{label} left the device unusable"
        return anyone

    def _lacks(self, measured: Measurement) -> bool:
        seen = self.gpu is None or measured.kernels_per_step is not None
        return len(measured.rounds) < self.rounds or not seen


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
        measured.failure, usable = reason_of(error), not _unusable_after(error)
    # Out here the failed frames are gone, with what they held. Trainers and networks refer to each
    # other.
    lost = give_back() if usable else None
    if lost is not None:
        measured.failure, usable = measured.failure or reason_of(lost), False
    return usable, outcome


def give_back() -> RuntimeError | None:
    """What a training leaves on a GPU; the error of one that cannot be used any more."""
    gc.collect()
    try:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    except RuntimeError as error:
        return error
    return None


def _unusable_after(error: Exception) -> bool:
    """Whether memory ran out without harm to others: no capture was cut short and failed to end."""
    reason = out_of_memory(error)
    return lost_context(error) if reason is None else reason is not error


def reason_of(error: Exception) -> str:
    """One line: `out of memory: …`, or the kind of error and the first line of what it says."""
    if (reason := out_of_memory(error)) is not None:
        return f"out of memory: {first_line(reason)}"
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"
