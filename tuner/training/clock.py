"""The stopwatch behind `wall_clock_s`: it reads only once the device has finished its work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tuner.config import Precision


@dataclass(slots=True)
class Clock:
    """Starts, pauses and stops at moments at which the device is idle.

    Args:
        synchronize: waits for the device; see `synchronizer`.
        now: a monotonic time in seconds.
        told: called, off the clock, when it is about to start (True) and when it has stopped.
    """

    synchronize: Callable[[], None]
    now: Callable[[], float] = time.perf_counter
    told: Callable[[bool], None] = lambda _runs: None
    _before: float = field(default=0.0, init=False)
    _since: float | None = field(default=None, init=False)

    def start(self) -> None:
        self.synchronize()
        self.told(True)
        self._since = self.now()

    def restore(self, seconds: float) -> None:
        """Before it starts: seconds that an earlier attempt at the same training has counted."""
        self._before = seconds

    def stop(self) -> float:
        """Waits for the device, stops if running, and returns the seconds counted so far."""
        if self._since is not None:
            self.synchronize()
            self._before, self._since = self.elapsed(), None
            self.told(False)
        return self._before

    def elapsed(self) -> float:
        """Seconds counted so far, without waiting for the device: at the end, `wall_clock_s`."""
        return self._before if self._since is None else self._before + self.now() - self._since

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent inside is not counted. The device is idle on entry: no work hides here."""
        self.stop()
        try:
            yield
        finally:
            self.start()


def synchronizer(device: torch.device) -> Callable[[], None]:
    """What waits for everything queued on the device; on a CPU nothing is ever queued."""
    if device.type != "cuda":
        return lambda: None
    return lambda: torch.cuda.synchronize(device)


# What a training sets in its process and puts back: random state and arithmetic of products.


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Seeds torch for one training and yields a generator on the device for its shuffles.

    The caller's random state, on the CPU and on this device, is untouched afterwards; other devices
    are never touched. Weights are drawn on the CPU, so that one seed starts every device from the
    same network.
    """
    with torch.random.fork_rng(devices=_cuda_indices(device)):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        # A seed of its own: the shuffles must not use the initial weights' random numbers.
        shuffle_seed = int(torch.randint(2**62, (), dtype=torch.int64))
        yield torch.Generator(device=device).manual_seed(shuffle_seed)


@contextlib.contextmanager
def unchanged_randomness(device: torch.device) -> Iterator[None]:
    """The state of the random generators, CPU and device, is afterwards what it was before."""
    with torch.random.fork_rng(devices=_cuda_indices(device)):
        yield


@contextlib.contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """How products of fp32 tensors are computed: in fp32, or in TF32 if asked for; repeatably.

    bf16 is a matter of the forward pass (autocast); what stays fp32 there is computed in fp32.
    """
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    wanted = "tf32" if precision is Precision.TF32 else "ieee"
    settings = [
        (torch.backends.cuda.matmul, wanted),
        (cudnn.conv, wanted),
        (mkldnn.matmul, "ieee"),
        (mkldnn.conv, "ieee"),
    ]
    before = [(backend, backend.fp32_precision) for backend, _ in settings]
    repeatable, searching = cudnn.deterministic, cudnn.benchmark
    try:
        for backend, value in settings:
            backend.fp32_precision = value
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        for backend, value in before:
            backend.fp32_precision = value
        cudnn.deterministic, cudnn.benchmark = repeatable, searching


def exact_fp32() -> contextlib.AbstractContextManager[None]:
    """Products of fp32 tensors are computed in fp32 (no TF32, no bf16 passes), repeatably."""
    return arithmetic(Precision.FP32)


def _cuda_indices(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
