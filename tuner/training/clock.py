"""The stopwatch behind `wall_clock_s`: it reads only once the device has finished its work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch


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
