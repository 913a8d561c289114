"""Compiles kernels, a forked process for each, as many at a time as there are jobs.

Forking costs milliseconds where everything is imported, and a compiler that crashes takes one
kernel with it. The process that forks never runs a compiler itself: it has no threads.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tuner.models.fused.compile_only import Kernel
from tuner.models.fused.kernel_claims import PATIENCE_S, BusyError, claim

LOOK_S = 0.02


@dataclass(slots=True)
class CompilePool:
    """Kernels to compile, in their order, and those that are being compiled.

    Args:
        cache: Triton's.
        jobs: how many at a time.
    """

    cache: Path
    jobs: int
    there: int = 0
    compiled: int = 0
    failed: int = 0
    _known: dict[str, Kernel] = field(default_factory=dict)
    _left: deque[Kernel] = field(default_factory=deque)
    _running: dict[int, Kernel] = field(default_factory=dict)
    _elsewhere: dict[str, tuple[Kernel, float]] = field(default_factory=dict)
    """What another process compiles, and until when it is waited for."""
    _beside: list[int] = field(default_factory=list)

    @property
    def found(self) -> int:
        return len(self._known)

    @property
    def is_over(self) -> bool:
        return not (self._left or self._running or self._elsewhere or self._beside)

    def add(self, kernels: Iterable[Kernel]) -> None:
        """To be compiled after those that were added before, except what is there already."""
        for kernel in kernels:
            if kernel.key in self._known:
                continue
            self._known[kernel.key] = kernel
            if kernel.is_in(self.cache):
                self.there += 1
            else:
                self._left.append(kernel)

    def run_beside(self, action: Callable[[], None]) -> None:
        """In a process of its own, which counts for nothing, not even as one of the jobs."""
        pid = os.fork()
        if pid == 0:
            _do_and_end(action)
        self._beside.append(pid)

    def step(self) -> None:
        """Take in what has ended, and start what there is room for; waits for nothing."""
        self._take_in()
        self._look_elsewhere()
        while self._left and len(self._running) < self.jobs:
            self._begin(self._left.popleft())

    def wait(self) -> None:
        """A moment, until something may have changed."""
        time.sleep(LOOK_S)

    def _take_in(self) -> None:
        for pid in list(self._beside):
            if os.waitpid(pid, os.WNOHANG)[0] != 0:
                self._beside.remove(pid)
        for pid, kernel in list(self._running.items()):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
            del self._running[pid]
            if kernel.is_in(self.cache):
                self.compiled += 1
            else:
                self.failed += 1

    def _look_elsewhere(self) -> None:
        for key, (kernel, until) in list(self._elsewhere.items()):
            if kernel.is_in(self.cache):
                self.compiled += 1
                del self._elsewhere[key]
                continue
            try:
                held = claim(kernel, self.cache)
            except BusyError:
                if time.monotonic() < until:
                    continue
                held = None
            del self._elsewhere[key]
            self._fork(kernel, held)

    def _begin(self, kernel: Kernel) -> None:
        try:
            held = claim(kernel, self.cache)
        except BusyError:
            self._elsewhere[kernel.key] = kernel, time.monotonic() + PATIENCE_S
            return
        self._fork(kernel, held)

    def _fork(self, kernel: Kernel, held: int | None) -> None:
        """The process inherits the claim, which ends with it; none where another process has just
        ended with this kernel.
        """
        if kernel.is_in(self.cache):
            if held is not None:
                os.close(held)
            self.compiled += 1
            return
        pid = os.fork()
        if pid == 0:
            _do_and_end(kernel.compile)
        if held is not None:
            os.close(held)
        self._running[pid] = kernel


def _do_and_end(action: Callable[[], None]) -> None:
    code = 1
    try:
        action()
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as its parent would
        traceback.print_exc()
    finally:
        os._exit(code)
