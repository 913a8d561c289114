"""How busy GPU, process and cores are while something runs: NVML and psutil say it."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import psutil

from tuner.bench.rounds import UtilisationSampler
from tuner.devices import CpuCores, Gpu
from tuner.profile.profile_records import Busy

WATCHED_S = 2.0
"""On a GPU: NVML's figure is a mean over up to a second."""


class Watching:
    """From the beginning of the `with` block to its end.

    Args:
        gpu: to be watched beside the host; None for none.
        cores: those whose figures are wanted; None for all.
    """

    def __init__(self, gpu: Gpu | None, cores: Sequence[int] | None = None) -> None:
        self._sampler = None if gpu is None else UtilisationSampler(gpu)
        self._cores = cores
        self._process = psutil.Process()
        self._stack = ExitStack()
        self._window = (0.0, 0.0)
        self._seen = Busy()

    def __enter__(self) -> Self:
        if self._sampler is not None:
            self._stack.enter_context(self._sampler)
        psutil.cpu_percent(percpu=True)
        self._process.cpu_percent()
        self._window = (time.perf_counter(), 0.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, error, trace
        self._window = (self._window[0], time.perf_counter())
        cores = psutil.cpu_percent(percpu=True)
        process = self._process.cpu_percent()
        self._stack.close()
        gpu = None if self._sampler is None else self._sampler.median(self._window)
        wanted = cores if self._cores is None else [cores[core] for core in self._cores]
        self._seen = Busy(gpu=gpu, process=process, cores=tuple(wanted))

    def busy(self) -> Busy:
        """What was seen, once the block is over."""
        return self._seen

    @staticmethod
    def peak_of_process() -> int:
        """The most memory that this process ever took, in bytes."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # kilobytes elsewhere


def busy_during(work: Callable[[], object], device: Gpu | CpuCores) -> Busy:
    """What the machine was at while `work` ran; on a GPU it is repeated for `WATCHED_S`."""
    gpu = device if isinstance(device, Gpu) else None
    cores = device.cores if isinstance(device, CpuCores) else None
    with Watching(gpu, cores) as watching:
        began = time.perf_counter()
        work()
        while gpu is not None and time.perf_counter() - began < WATCHED_S:
            work()
    return watching.busy()
