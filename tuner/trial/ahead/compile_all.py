"""A process that compiles all kernels of an order: `python -m tuner.trial.ahead.compile_all`.

The order comes on stdin, progress goes to stdout, a line of JSON each, and failures to stderr. It
sees no GPU, whoever starts it, so that no CUDA context is ever made, and gives way to everything
else on its cores. It ends with the process that started it.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypeVar

import torch

from tuner.config import Backend, Hyperparameters, RunConfig
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.errors import DataError, TunerError
from tuner.models.fused.compile_only import Kernel, build_driver_module
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.choose import faster_fused, why_not_fused, why_nothing_is_built
from tuner.trial.ahead.compile_order import Capability, Order, Search, configurations, why_none
from tuner.trial.ahead.compile_pool import CompilePool
from tuner.trial.ahead.compile_progress import Progress
from tuner.trial.ahead.ready_stamp import Ready, cache_folder, stamp_path, write_stamp

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
        config = RunConfig(
            architecture=definition.architecture,
            hyperparameters=hyperparameters,
            training=definition.training,
        )
        shapes = self.data.shapes
        automatic = config.training.backend is Backend.AUTO
        if automatic and not faster_fused(config, shapes, self.capability):
            self.reason = self.reason or "auto chooses other backends for these sizes on this GPU"
            return {}
        model = build_model(config.architecture, shapes, hyperparameters)
        if (reason := why_not_fused(config, model, CUDA)) is not None:
            self.reason = self.reason or reason
            return {}
        from tuner.training.engines.fused.fused_engine import kernels_of

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
        return Progress(
            found=self.pool.found,
            there=self.pool.there,
            compiled=self.pool.compiled,
            failed=self.pool.failed,
            reasons=reasons,
            over=over,
        )

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
    order = Order.from_json(sys.stdin.read())
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
