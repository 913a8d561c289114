"""How busy the GPU is while a contender trains, as NVML says it."""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType
from typing import Self

from tuner.devices import Gpu
from tuner.devices.busy import NVML_PERIOD_S
from tuner.devices.gpu import nvml

INTERVAL_S = 0.1


class UtilisationSampler:
    """Reads the GPU's utilisation ten times a second, in a thread, while the `with` block runs."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._samples: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
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
        self._thread.join()

    def median(self, window: tuple[float, float]) -> float | None:
        """Median in per cent between two `perf_counter` readings; None where NVML is silent."""
        return median_within(self._samples, window)

    def _watch(self) -> None:
        with nvml() as library:
            if library is None:
                return
            handle = library.nvmlDeviceGetHandleByUUID(self._gpu.uuid)
            while not self._stop.wait(INTERVAL_S):
                try:
                    used = library.nvmlDeviceGetUtilizationRates(handle).gpu
                except library.NVMLError:  # not every card or virtual machine has this figure
                    return
                self._samples.append((time.perf_counter(), int(used)))


def median_within(samples: list[tuple[float, int]], window: tuple[float, float]) -> float | None:
    """Samples early in the window still speak of the time before: left out while others remain."""
    first, last = window
    inside = [used for at, used in samples if first <= at <= last]
    settled = [used for at, used in samples if first + NVML_PERIOD_S <= at <= last]
    return statistics.median(settled or inside) if inside else None
