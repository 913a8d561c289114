"""How busy GPU, process and cores are while something runs: NVML and psutil say it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import psutil

from tuner.bench.utilisation import UtilisationSampler
from tuner.devices import CpuCores, Gpu
from tuner.profile.records import Busy

WATCHED_S = 2.0
"""On a GPU: NVML's figure is a mean over up to a second."""


def busy_during(work: Callable[[], object], device: Gpu | CpuCores | None) -> Busy:
    """What the machine was at while `work` ran; on a GPU it is repeated for `WATCHED_S`."""
    process = psutil.Process()
    gpu = device if isinstance(device, Gpu) else None
    watched = UtilisationSampler(gpu) if gpu is not None else nullcontext()
    psutil.cpu_percent(percpu=True)
    process.cpu_percent()
    with watched:
        began = time.perf_counter()
        work()
        while gpu is not None and time.perf_counter() - began < WATCHED_S:
            work()
        ended = time.perf_counter()
    cores = psutil.cpu_percent(percpu=True)
    if isinstance(device, CpuCores):
        cores = [cores[core] for core in device.cores]
    return Busy(
        gpu=watched.median((began, ended)) if isinstance(watched, UtilisationSampler) else None,
        process=process.cpu_percent(),
        cores=tuple(cores),
    )
