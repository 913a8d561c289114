"""How busy a GPU and this process are while a training's clock runs.

The process is looked at where the clock starts and stops, off the clock. A GPU has to be asked in
between, as NVML's figure speaks of the last second at most: a thread wakes up twice a second and
reads one number. That takes the training's thread some ten thousandths of a second in each, less
than can be seen in a clock, and no reading waits for the device.
"""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tuner.devices.cpu import CpuCores
from tuner.devices.gpu import Gpu, nvml

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
        self._readings: list[float] = []
        self._since: tuple[float, float] | None = None
        """Wall clock and processor time of this process when the clock started; None: it stands."""
        self._undisturbed_since = 0.0
        self._stood_since = -LONG_PAUSE_S
        self._ran_s = self._used_s = 0.0

    def __enter__(self) -> Self:
        if isinstance(self._device, Gpu):
            library = self._library.enter_context(nvml())  # here: it may take long the first time
            handle = _handle(library, self._device)
            if handle is not None:
                self._thread = threading.Thread(
                    target=self._watch, args=(library, handle), daemon=True
                )
                self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
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
        gpu = statistics.fmean(self._readings) if self._readings else None
        cpu = self._used_s / self._ran_s if self._ran_s > 0 else None
        return Busy(
            gpu=None if gpu is None else round(gpu, 4), cpu=None if cpu is None else round(cpu, 3)
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
            self._readings.append(used / 100)


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
