"""What else happened on the device while a trial was timed:
foreign processes, clocks, throttling, and whether this process was stopped meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import psutil

from tuner.devices.cpu import CpuCores
from tuner.devices.gpu import Gpu, nvml
from tuner.devices.lock import cuda_users, foreign_processes, is_harmless, lock_folder
from tuner.files import kinds

# How often this process was stopped and went on: its clock went on all the while.


@dataclass(slots=True)
class Stops:
    """Counted since `count` was called."""

    so_far: int = 0

    def count(self) -> None:
        """Count from now on. To be called in the main thread; elsewhere nothing is counted."""
        try:
            signal.signal(signal.SIGCONT, self._continued)
        except ValueError:
            return

    def _continued(self, number: int, frame: object) -> None:
        del number, frame
        self.so_far += 1


@functools.cache
def stops() -> Stops:
    """Those of this process."""
    return Stops()


CPU_FOREIGN_SHARE = 0.10
"""On a CPU, a timing is contaminated when others used more than this share of our cores' time."""

SEES_PROCESSES = "sees_processes"
"""Of the details on a GPU: whether NVML lists any process at all."""

_HARMFUL_THROTTLE = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen between start and end. `contaminated` says that the timing is not to be
    trusted, `why` says why.
    """

    contaminated: bool
    why: str
    details: dict[str, Any] = field(default_factory=dict)
    energy_j: float | None = None
    """Joules of its GPUs since the clock started; None where nobody counts them."""


def energy_j(device: Gpu | CpuCores) -> float | None:
    """Joules that its GPUs have drawn since their driver was loaded, all together; None of cores,
    and where NVML does not count them, as before Volta or of a part of a GPU.

    A call takes about a millisecond, so it is made while no clock runs.
    """
    if not isinstance(device, Gpu):
        return None
    with nvml() as library:
        if library is None:
            return None
        total_mj = 0
        for gpu in device.devices:
            try:
                handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
                total_mj += library.nvmlDeviceGetTotalEnergyConsumption(handle)
            except library.NVMLError:
                return None
    return total_mj / 1000


def used_cpu_s() -> float:
    """What this process has used of the cores, and the worker whose trainer it is, if it is one:
    that works while the clock stands.
    """
    used = time.process_time()
    with contextlib.suppress(psutil.Error):
        if is_harmless(os.getppid(), lock_folder()):
            worker = psutil.Process(os.getppid()).cpu_times()
            used += worker.user + worker.system
    return used


class Watch:
    """Looks at a device before and after a timed part,
    and whenever asked: nothing while the clock runs.
    """

    def __init__(
        self,
        device: Gpu | CpuCores,
        *,
        own_cpu_s: Callable[[], float] = used_cpu_s,
        on_gpu: bool = True,
        program: Callable[[], Collection[int]] = tuple,
        ranks: Sequence[int] = (),
    ) -> None:
        """`own_cpu_s` is what we have used of the cores so far; `on_gpu` says whether this process
        itself is on the GPU; `program` gives the processes of a program that trains for us, which
        is no stranger there; `ranks` are the processes that train with this one, each on the next
        of several GPUs.
        """
        self._ranks = ranks
        self._own_cpu_s, self._on_gpu, self._program = own_cpu_s, on_gpu, program
        self._device = device
        self._stops = stops().so_far
        self._before = self._look()
        self._energy_j: float | None = None

    def clock_starts(self) -> None:
        """Its clock is about to start for the first time: joules count from here on."""
        self._energy_j = energy_j(self._device)

    def finish(self) -> Observation:
        """What was seen up to now."""
        return dataclasses.replace(self._seen(), energy_j=self._used_j())

    def _used_j(self) -> float | None:
        """Since the clock started; None where the counter began anew meanwhile, with its driver."""
        before = self._energy_j
        now = None if before is None else energy_j(self._device)
        return None if before is None or now is None or now < before else now - before

    def _seen(self) -> Observation:
        after = self._look()
        if isinstance(self._device, Gpu):
            seen = self._judge_gpus(self._before, after)
        else:
            seen = _judge_cpu(self._before, after, len(self._device.cores))
        if stops().so_far == self._stops:
            return seen
        why = "; ".join(filter(None, (seen.why, "this process was stopped for a while")))
        return Observation(contaminated=True, why=why, details=seen.details)

    def _look(self) -> Any:
        if isinstance(self._device, Gpu):
            return [_look_at_gpu(gpu, self._program) for gpu in self._device.devices]
        return _look_at_cores(self._device, self._own_cpu_s())

    def _judge_gpus(
        self, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
    ) -> Observation:
        """Of several, the details of the first, and with it those of the others."""
        own: list[int | None] = [None, *self._ranks]
        seen = []
        for number, (was, now) in enumerate(zip(before, after, strict=True)):
            is_ours = number < len(own)
            on_gpu = self._on_gpu if number == 0 else is_ours
            seen.append(_judge_gpu(was, now, on_gpu=on_gpu, own=own[number] if is_ours else None))
        first, *others = seen
        if not others:
            return first
        details = first.details | {"others": [each.details for each in others]}
        if SEES_PROCESSES in details:
            details[SEES_PROCESSES] = all(each.details.get(SEES_PROCESSES) for each in seen)
        why = "; ".join(dict.fromkeys(each.why for each in seen if each.why))
        return Observation(bool(why), why, details)


def _look_at_gpu(gpu: Gpu, program: Callable[[], Collection[int]]) -> dict[str, Any]:
    with nvml() as library:
        if library is None:
            return {}
        handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)

        def read(name: str, *arguments: Any) -> Any:
            try:
                return getattr(library, name)(handle, *arguments)
            except (
                library.NVMLError
            ):  # not every figure exists on every card or in every virtual machine
                return None

        # Asked before and after: its children come and go.
        trained = {*program()}
        processes = read("nvmlDeviceGetComputeRunningProcesses") or []
        trained |= {*program()}
        return {
            "sm_clock_mhz": read("nvmlDeviceGetClockInfo", library.NVML_CLOCK_SM),
            "memory_clock_mhz": read("nvmlDeviceGetClockInfo", library.NVML_CLOCK_MEM),
            "temperature_c": read("nvmlDeviceGetTemperature", library.NVML_TEMPERATURE_GPU),
            "throttle": read("nvmlDeviceGetCurrentClocksThrottleReasons") or 0,
            "processes": sorted(process.pid for process in processes),
            "program": trained,
            "program_on_gpu": cuda_users(trained),
        }


def _judge_gpu(
    before: dict[str, Any], after: dict[str, Any], *, on_gpu: bool = True, own: int | None = None
) -> Observation:
    if not before or not after:
        return Observation(contaminated=False, why="", details={"watched": False})
    others = foreign_processes(
        before["processes"],
        after["processes"],
        own=own,
        harmless=lambda pid: is_harmless(pid, lock_folder()),
        on_gpu=on_gpu,
        program=after["program"],
        program_on_gpu=after["program_on_gpu"],
    )
    throttle = before["throttle"] | after["throttle"]
    why = []
    if others:
        why.append(f"other processes on the GPU: {', '.join(map(str, others))}")
    why += [name for bit, name in _HARMFUL_THROTTLE.items() if throttle & bit]
    details = {
        "other_processes": others,
        # Ours is there by now. Where not even that is listed, as in many containers, those of other
        # databases are not either.
        SEES_PROCESSES: bool(before["processes"] or after["processes"]),
        "sm_clock_mhz": [before["sm_clock_mhz"], after["sm_clock_mhz"]],
        "memory_clock_mhz": [before["memory_clock_mhz"], after["memory_clock_mhz"]],
        "temperature_c": [before["temperature_c"], after["temperature_c"]],
        "throttle_reasons": throttle,
    }
    return Observation(contaminated=bool(why), why="; ".join(why), details=details)


def _look_at_cores(device: CpuCores, own: float) -> dict[str, Any]:
    times = psutil.cpu_times(percpu=True)
    # Cores in /proc/stat are numbered as in an affinity mask; idle and iowait are time nobody used,
    # and guest time is already part of user time.
    busy = 0.0
    for core in device.cores:
        t = times[core]
        busy += (
            sum(t) - t.idle - t.iowait - getattr(t, "guest", 0.0) - getattr(t, "guest_nice", 0.0)
        )
    frequency = psutil.cpu_freq()
    return {
        "busy": busy,
        "own": own,
        "at": time.perf_counter(),
        "mhz": frequency.current if frequency else None,
    }


def _judge_cpu(before: dict[str, Any], after: dict[str, Any], cores: int) -> Observation:
    elapsed = max(after["at"] - before["at"], 1e-9)
    foreign = max(0.0, (after["busy"] - before["busy"]) - (after["own"] - before["own"]))
    share = foreign / (elapsed * cores)
    # The kernel counts in hundredths of a second: a part shorter than half a second says nothing.
    contaminated = elapsed > 0.5 and share > CPU_FOREIGN_SHARE  # noqa: PLR2004
    why = f"others used {share:.0%} of these cores' time" if contaminated else ""
    details = {"foreign_cpu_share": round(share, 4), "cpu_mhz": [before["mhz"], after["mhz"]]}
    return Observation(contaminated=contaminated, why=why, details=details)


# What earlier attempts at a training saw of their device: it travels in the notes of a
# checkpoint.


@dataclass(slots=True)
class Carried:
    """The parts before this one. Times are in seconds since 1970 on the clock of the machine that
    ran the part.
    """

    contaminated: bool = False
    why: str = ""
    energy_j: float | None = 0.0
    """None: what they drew is not known."""
    parts: list[tuple[float, float]] = field(default_factory=list)

    def take(self, notes: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's notes; what does not say that it was clean was not."""
        self.contaminated = notes.get("contaminated") is not False
        self.why = str(
            notes.get("contamination", "nothing is known of the device before the interruption")
        )
        energy = notes.get("energy_j")
        self.energy_j = energy if kinds.JOULES.holds(energy) else None
        self.parts = [(float(began), float(ended)) for began, ended in notes.get("parts", ())]

    def notes(self, seen: Observation, began: float, now: float) -> dict[str, Any]:
        """For a checkpoint written `now`, of a part that began at `began` and saw `seen`."""
        whole = self.merged(seen)
        parts = [*self.parts, (began, now)]
        return {
            "contaminated": whole.contaminated,
            "contamination": whole.why,
            "energy_j": whole.energy_j,
            "parts": [list(part) for part in parts],
        }

    def merged(self, seen: Observation) -> Observation:
        """What is to be said of all parts together; details are the last one's."""
        why = "; ".join(
            reason for reason in (self.why if self.contaminated else "", seen.why) if reason
        )
        known = None not in (self.energy_j, seen.energy_j)
        energy = (self.energy_j or 0.0) + (seen.energy_j or 0.0) if known else None
        return Observation(self.contaminated or seen.contaminated, why, seen.details, energy)


# How busy a GPU and this process are while a training's clock runs.


INTERVAL_S = 0.5
NVML_PERIOD_S = 1.0
"""NVML's figure is a mean over up to so long before it is read."""
LONG_PAUSE_S = 0.05
"""After a longer pause of the clock, such as for a checkpoint, a reading speaks of it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What was seen while the clock ran; None is what could not be seen."""

    gpu: float | None = None
    """The share of the time in which a kernel was running on the GPU, by anybody."""
    cpu: float | None = None
    """Cores that this process kept busy, all its threads together, on average."""


class BusyMeter:
    """Measures while the `with` block runs; `clock_runs` tells it when the clock does."""

    def __init__(self, device: Gpu | CpuCores, interval_s: float = INTERVAL_S) -> None:
        self._device = device
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._library = ExitStack()
        self.readings: list[tuple[float, int]] = []
        """Of the GPU, while the clock ran: when (`perf_counter`), and how busy in per cent."""
        self._since: tuple[float, float] | None = None
        """Wall clock and processor time of this process when the clock started; None: it stands."""
        self._undisturbed_since = 0.0
        self._stood_since = -LONG_PAUSE_S
        self._ran_s = self._used_s = 0.0

    def __enter__(self) -> Self:
        if isinstance(self._device, Gpu):
            library = self._library.enter_context(nvml())  # here: it may take long the first time
            handle = _handle(library, self._device.devices[0])
            if handle is not None:
                self._thread = threading.Thread(
                    target=self._watch, args=(library, handle), daemon=True
                )
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._library.close()

    def clock_runs(self, runs: bool) -> None:
        """The clock is about to start, or has just been stopped."""
        now, used = time.perf_counter(), time.process_time()
        if runs:
            if now - self._stood_since >= LONG_PAUSE_S:
                self._undisturbed_since = now
            self._since = now, used
        elif self._since is not None:
            (began, used_before), self._since = self._since, None
            self._ran_s += now - began
            self._used_s += used - used_before
            self._stood_since = now

    def seen(self) -> Busy:
        """Up to now; of a clock that has stopped."""
        gpu = statistics.fmean(used for _, used in self.readings) if self.readings else None
        cpu = self._used_s / self._ran_s if self._ran_s > 0 else None
        return Busy(
            gpu=None if gpu is None else round(gpu / 100, 4),
            cpu=None if cpu is None else round(cpu, 3),
        )

    def _watch(self, library: Any, handle: Any) -> None:
        while not self._stop.wait(self._interval_s):
            now = time.perf_counter()
            if self._since is None or now - self._undisturbed_since < NVML_PERIOD_S:
                continue
            try:
                used = library.nvmlDeviceGetUtilizationRates(handle).gpu
            except library.NVMLError:
                return
            self.readings.append((now, int(used)))


def _handle(library: Any | None, gpu: Gpu) -> Any | None:
    """What NVML calls the GPU; None where it has no such figure of it: not every card or virtual
    machine has one.
    """
    if library is None:
        return None
    try:
        handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
        library.nvmlDeviceGetUtilizationRates(handle)
    except library.NVMLError:
        return None
    return handle
