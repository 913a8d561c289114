"""A process that compiles all kernels of an order: `python -m tuner.trial.ahead.compile_all`.

The order comes on stdin, progress goes to stdout, a line of JSON each, and failures to stderr. It
sees no GPU, whoever starts it, so that no CUDA context is ever made, and gives way to everything
else on its cores. It ends with the process that started it.
"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

import torch

from tuner.config import Backend, Hyperparameters
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.errors import DataError, TunerError
from tuner.kernels.compile_only import Kernel, build_driver_module, claim_in_turn
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.choose import faster_fused, why_not_fused, why_nothing_is_built
from tuner.trial.ahead.compile_order import (
    Capability,
    Order,
    Progress,
    Ready,
    Search,
    cache_folder,
    configurations,
    stamp_path,
    why_none,
    write_stamp,
)
from tuner.trial.run import run_config

# Compiles kernels, a forked process for each, as many at a time as there are jobs.


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
    _beside: list[int] = field(default_factory=list)

    @property
    def found(self) -> int:
        return len(self._known)

    @property
    def is_over(self) -> bool:
        return not (self._left or self._running or self._beside)

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
        self._beside.append(_forked(action))

    def step(self) -> None:
        """Take in what has ended, and start what there is room for; waits for nothing."""
        self._take_in()
        while self._left and len(self._running) < self.jobs:
            kernel = self._left.popleft()
            if kernel.is_in(self.cache):  # another process was faster
                self.compiled += 1
            else:
                self._running[_forked(functools.partial(self._compile, kernel))] = kernel

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

    def _compile(self, kernel: Kernel) -> None:
        """In a process of its own, with which the claim ends; what another one compiles just now is
        waited for.
        """
        claim_in_turn(kernel, self.cache)
        if not kernel.is_in(self.cache):
            kernel.compile()


def _forked(action: Callable[[], None]) -> int:
    """The process that does this, and no more."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    except BaseException:  # noqa: BLE001 - it must not go on as its parent would
        traceback.print_exc()
    finally:
        os._exit(code)


T = TypeVar("T")
NICE = 19
CUDA = torch.device("cuda")


@dataclass(slots=True)
class Wanted:
    """The kernels of one search as far as they are known, and why others are none."""

    search: Search
    data: DeviceData
    capability: Capability
    kernels: dict[str, Kernel] = field(default_factory=dict)
    reason: str = ""

    def by_configuration(self) -> Iterator[Sequence[Kernel]]:
        """The kernels of each configuration of `configurations`, in that order."""
        if (reason := why_none(self.search.definition) or why_nothing_is_built()) is not None:
            self.reason = reason
            return
        for hyperparameters in configurations(self.search.definition):
            found = self._kernels_of(hyperparameters)
            self.kernels.update(found)
            # The longest to compile run last in a step: those first.
            yield list(found.values())[::-1]

    def _kernels_of(self, hyperparameters: Hyperparameters) -> Mapping[str, Kernel]:
        definition = self.search.definition
        config = run_config(definition, hyperparameters, 0)
        shapes = self.data.shapes
        automatic = config.training.backend is Backend.AUTO
        if automatic and not faster_fused(config, shapes, self.capability):
            self.reason = self.reason or "auto chooses other backends for these sizes on this GPU"
            return {}
        model = build_model(config.architecture, shapes, hyperparameters)
        if (reason := why_not_fused(config, model, CUDA)) is not None:
            self.reason = self.reason or reason
            return {}
        from tuner.training.engines.fused_engine import kernels_of

        assert isinstance(model, TSMixer), "the fused kernels serve no other network"
        return kernels_of(config, self.data, model, self.capability)


@dataclass(slots=True)
class Compiling:
    """An order on its way."""

    order: Order
    cache: Path
    parent: int
    pool: CompilePool = field(init=False)
    _last: Progress | None = None

    def __post_init__(self) -> None:
        self.pool = CompilePool(self.cache, self.order.jobs)

    def run(self) -> bool:
        """Compile everything, and leave a stamp for each search; whether nothing failed."""
        wanted = self._wanted()
        for kernels in _firsts_first([each.by_configuration() for each in wanted]):
            if kernels and not self.pool.found:
                self.pool.run_beside(build_driver_module)
            self.pool.add(kernels)
            self._step()
        while not self.pool.is_over:
            self.pool.wait()
            self._step()
        reasons = tuple(each.reason for each in wanted if not each.kernels)
        for each in wanted:
            self._stamp(each)
        self._tell(self._progress(reasons, over=True))
        return self.pool.failed == 0

    def _wanted(self) -> list[Wanted]:
        """Raises DataError where the data is missing, or not what a search was begun with."""
        loaded: dict[str, DeviceData] = {}
        wanted = []
        for search in self.order.searches:
            digest = search.definition.data_hash
            if digest not in loaded:
                prepared = prepare(search.task, data_dir=self.order.data_dir)
                if prepared.data_hash != digest:
                    raise DataError(
                        f"the data here is not what {search.definition.variant} is searched on "
                        f"(hash {prepared.data_hash[:12]}, expected {digest[:12]})"
                    )
                loaded[digest] = to_device(prepared, "cpu")
            wanted.append(Wanted(search, loaded[digest], self.order.capability))
        return wanted

    def _step(self) -> None:
        if os.getppid() != self.parent:
            raise SystemExit(1)
        self.pool.step()
        self._tell(self._progress())

    def _progress(self, reasons: tuple[str, ...] = (), *, over: bool = False) -> Progress:
        counted = ("found", "there", "compiled", "failed")
        counts = {name: getattr(self.pool, name) for name in counted}
        return Progress(**counts, reasons=reasons, over=over)

    def _tell(self, progress: Progress) -> None:
        if progress != self._last:
            print(progress.to_line(), flush=True)  # noqa: T201 - what it is started for
            self._last = progress

    def _stamp(self, wanted: Wanted) -> None:
        kernels = list(wanted.kernels.values())
        if not all(kernel.is_in(self.cache) for kernel in kernels):
            return
        if why_nothing_is_built() is not None:  # which may change any day
            return
        path = stamp_path(self.cache, wanted.search, self.order.capability)
        ready = Ready(tuple(kernel.marker for kernel in kernels), wanted.reason)
        with suppress(OSError):  # a cache that is read-only: the next launch looks again
            write_stamp(path, ready)


def _firsts_first(searches: Sequence[Iterator[Sequence[T]]]) -> Iterator[Sequence[T]]:
    """The first configuration of every search, then the rest of one after the other."""
    for each in searches:
        yield next(each, ())
    yield from chain.from_iterable(searches)


def main() -> int:
    """Returns 0 where every kernel is compiled by now."""
    parent = os.getppid()
    order: Order = pickle.load(sys.stdin.buffer)  # noqa: S301 - of whoever started it
    os.nice(NICE)
    torch.set_num_threads(1)
    gc.freeze()  # forked processes share what is here as long as nobody touches it
    try:
        return 0 if Compiling(order, cache_folder(os.environ), parent).run() else 1
    except TunerError as error:
        print(f"tuner: error: {error}", file=sys.stderr)  # noqa: T201 - its log
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
