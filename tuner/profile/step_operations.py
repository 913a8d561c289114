"""What a step launches, and how busy the machine is meanwhile, as torch.profiler, NVML and psutil
say it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

from tuner.bench.contender import INTERVAL_S, is_kernel, median_within
from tuner.devices import CpuCores, Gpu
from tuner.devices.watch import BusyMeter
from tuner.errors import first_line
from tuner.profile.profile_records import Busy, Operation, Operations

STEPS = 3
TOP = 10

_PRODUCT = re.compile(r"gemm|gemv|nvjet|wgmma|hmma|fprop|dgrad|wgrad|convolve|flash|_mm_|addmm")
_PLAIN = re.compile(r"simt|ffma|gemv|f32f32_f32f32|(?<!tf32_)sgemm(?!.*(1688|16816|tf32))")
_ON_TENSOR_CORES = re.compile(
    r"tensorop|1688|16816|884|hmma|wgmma|gmma|nvjet|tf32|bf16|f16|flash|cudnn.*(?:h16|s1688)"
)


def operations(
    work: Callable[[], object], device: torch.device, *, steps: int = STEPS, trace: Path | None
) -> Operations:
    """What `work` launches, which takes so many steps; the trace is for chrome://tracing.

    That a profiler cannot run is an outcome, and said.
    """
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    try:
        with without_a_word(), profile(activities=activities) as traced:
            work()
            if on_gpu:
                torch.cuda.synchronize(device)
        if trace is not None:
            traced.export_chrome_trace(str(trace))
        if on_gpu:
            kernels = filter(is_kernel, traced.events())
            return of_kernels(((each.name, _seconds(each)) for each in kernels), steps)
        return _of_host(traced.key_averages(), steps)
    except RuntimeError as error:
        return Operations(failure=first_line(error))


@contextmanager
def without_a_word() -> Iterator[None]:
    """What libraries write to the standard error of the process is lost: a profiler's chatter."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def of_kernels(kernels: Iterable[tuple[str, float]], steps: int) -> Operations:
    """From each kernel's name and seconds."""
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for name, took in kernels:
        seconds[name] += took
        calls[name] += 1
    products = sum(took for name, took in seconds.items() if is_product(name))
    fast = sum(took for name, took in seconds.items() if on_tensor_cores(name))
    return Operations(
        top=_top([(name, calls[name], seconds[name]) for name in seconds], steps),
        kernels=sum(calls.values()) / steps,
        kernel_s=sum(seconds.values()) / steps,
        tensor_cores=fast / products if products else None,
    )


def is_product(kernel: str) -> bool:
    """Whether a kernel's name says that it multiplies matrices, or convolves."""
    return _PRODUCT.search(kernel.lower()) is not None


def on_tensor_cores(kernel: str) -> bool:
    """Whether a kernel's name says that it does so on tensor cores."""
    name = kernel.lower()
    fast = _ON_TENSOR_CORES.search(name) is not None and _PLAIN.search(name) is None
    return fast and is_product(name)


def _seconds(event: Any) -> float:
    return float(event.time_range.end - event.time_range.start) / 1e6


def _of_host(averages: Iterable[Any], steps: int) -> Operations:
    found = [
        (each.key, each.count, each.self_cpu_time_total / 1e6)
        for each in averages
        if not each.key.startswith(("ProfilerStep", "[", "Optimizer."))
    ]
    return Operations(top=_top(found, steps))


def _top(found: list[tuple[str, int, float]], steps: int) -> tuple[Operation, ...]:
    """The longest of name, calls and seconds."""
    return tuple(
        Operation(name=name, calls=calls / steps, seconds=took / steps)
        for name, calls, took in sorted(found, key=lambda each: -each[2])[:TOP]
    )


# How busy GPU, process and cores are while something runs: NVML and psutil say it.


WATCHED_S = 2.0
"""On a GPU: NVML's figure is a mean over up to a second."""


@contextmanager
def watched(gpu: Gpu | None, cores: Sequence[int] | None = None) -> Iterator[list[Busy]]:
    """How busy the machine is in the `with` block: the list holds it once the block is over.

    Args:
        gpu: to be watched beside the host; None for none.
        cores: those whose figures are wanted; None for all.
    """
    found: list[Busy] = []
    process = psutil.Process()
    with nullcontext() if gpu is None else BusyMeter(gpu, INTERVAL_S) as meter:
        if meter is not None:
            meter.clock_runs(True)
        psutil.cpu_percent(percpu=True)
        process.cpu_percent()
        began = time.perf_counter()
        yield found
        window = began, time.perf_counter()
        each, of_process = psutil.cpu_percent(percpu=True), process.cpu_percent()
    of_gpu = None if meter is None else median_within(meter.readings, window)
    wanted = each if cores is None else [each[core] for core in cores]
    found.append(Busy(gpu=of_gpu, process=of_process, cores=tuple(wanted)))


def busy_during(work: Callable[[], object], device: Gpu | CpuCores) -> Busy:
    """What the machine was at while `work` ran; on a GPU it is repeated for `WATCHED_S`."""
    gpu = device if isinstance(device, Gpu) else None
    with watched(gpu, device.cores if isinstance(device, CpuCores) else None) as found:
        began = time.perf_counter()
        work()
        while gpu is not None and time.perf_counter() - began < WATCHED_S:
            work()
    return found[0]
