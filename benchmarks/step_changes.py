"""Changes to the captured step that are not in the engine: the same arithmetic, by other launches or in another order."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import RunConfig
from tuner.data.windows import Batch, DeviceData, DeviceSplit
from tuner.training.engine import Poll, TrainedEpoch
from tuner.training.graph import GraphEngine

CHUNK = 8
Gather = Callable[[DeviceSplit, Tensor], Batch]


def gather_rows(split: DeviceSplit, index: Tensor) -> Batch:
    """`DeviceSplit.gather`, with each window as one row of a view on the rows: (windows, L, K) that overlap."""
    start = split.starts[index]
    length, horizon = split.past_steps.shape[1], split.future_steps.shape[1]
    return Batch(
        past=_windows(split.history, length)[start],
        future=None if split.future is None else _windows(split.future[length:], horizon)[start],
        static=None if split.static is None else split.static[split.series_index[index]],
        target=_windows(split.targets[length:], horizon)[start],
    )


def _windows(rows: Tensor, length: int) -> Tensor:
    """(R, K) -> (R - length + 1, length, K), the rows from each one on; nothing is copied."""
    columns = rows.shape[1]
    return rows.as_strided((len(rows) - length + 1, length, columns), (columns, columns, 1))


class Ahead:
    """The batches of an epoch, each gathered while the one before it is trained on: beside it, given a `stream`.

    What is trained on lies in `now`; what is gathered meanwhile in memory of its own, so that no stream ever writes what
    another may still read.
    """

    def __init__(
        self, split: DeviceSplit, order: Tensor, size: int, gather: Gather, stream: torch.cuda.Stream | None = None
    ) -> None:
        self._split, self._order, self._gather, self._stream = split, order, gather, stream
        self._offsets = torch.arange(size, device=order.device)
        self._position = torch.zeros((), dtype=torch.int64, device=order.device)
        first = gather(split, order[self._offsets])
        self._names = [f.name for f in dataclasses.fields(first) if getattr(first, f.name) is not None]
        self._now = [getattr(first, name).clone() for name in self._names]
        self._next = [tensor.clone() for tensor in self._now]

    def begin(self) -> None:
        """Back to the first batch of the order as it is now."""
        self._position.zero_()
        self._fill(self._now, 0)

    def batch(self, size: int) -> Batch:
        """The first `size` windows of what is there now."""
        parts: dict[str, Tensor | None] = dict.fromkeys(("past", "future", "static", "target"))
        return Batch(**(parts | {n: t[:size] for n, t in zip(self._names, self._now, strict=True)}))  # type: ignore[arg-type]

    def look_ahead(self, size: int) -> None:
        """Start to gather what follows the `size` windows that are trained on."""
        if self._stream is None:
            self._fill(self._next, size)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._fill(self._next, size)

    def advance(self, size: int) -> None:
        """Once the step is over: what follows is there now."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        torch._foreach_copy_(self._now, self._next)
        self._position += size

    def _fill(self, held: list[Tensor], beyond: int) -> None:
        """Beyond the end of the order its last window stands for what is not asked for."""
        index = self._order[(self._position + beyond + self._offsets).clamp_(max=len(self._order) - 1)]
        found = self._gather(self._split, index)
        for tensor, name in zip(held, self._names, strict=True):
            tensor.copy_(getattr(found, name))


def chunks(n_windows: int, size: int, steps: int) -> list[tuple[int, ...]]:
    """An epoch as graphs: the batch sizes that each of them trains on, at most `steps` a graph."""
    sizes = [size] * (n_windows // size) + [n_windows % size] * (n_windows % size > 0)
    return [tuple(sizes[first : first + steps]) for first in range(0, len(sizes), steps)]


@functools.cache
def _gathering_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


class Changed(GraphEngine):
    """The captured engine with some of the changes."""

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, *, rows: bool, ahead: bool, steps: int
    ) -> None:
        super().__init__(config, data, model)
        self._gather = gather_rows if rows else DeviceSplit.gather
        stream = _gathering_stream() if ahead else None
        self._ahead = Ahead(data.train, self._order, self._batch_size, self._gather, stream) if ahead else None
        self._plan = chunks(self._n_windows, self._batch_size, steps)
        self._graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph] = {}

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        self._updates.set_learning_rate(learning_rate)
        self._order.copy_(order)
        self._begin_epoch()
        for sizes in self._plan:
            self._graphs[sizes].replay()
            poll()
        return TrainedEpoch(self._train_loss_sum(), self._n_windows, None)

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        self._graphs.clear()
        super().close()

    def _begin_epoch(self) -> None:
        super()._begin_epoch()
        if self._ahead is not None:
            self._ahead.begin()

    def _train_batch(self, size: int) -> None:
        if self._ahead is None:
            index = self._order[self._position + self._offsets[:size]]
            self._loss_sum += self._step.train(self._gather(self._data.train, index)) * size
            self._position += size
            return
        self._ahead.look_ahead(size)
        self._loss_sum += self._step.train(self._ahead.batch(size)) * size
        self._ahead.advance(size)

    def _capture(self, stream: torch.cuda.Stream) -> None:
        super()._capture(stream)  # for its validation
        pool = torch.cuda.graph_pool_handle()
        self.model.train()
        for sizes in dict.fromkeys(self._plan):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                for size in sizes:
                    self._train_batch(size)
            self._graphs[sizes] = graph
        self.model.eval()


CHANGES: dict[str, dict[str, Any]] = {
    "rows": {"rows": True, "ahead": False, "steps": 1},
    "ahead": {"rows": False, "ahead": True, "steps": 1},
    "chunks": {"rows": False, "ahead": False, "steps": CHUNK},
    "all": {"rows": True, "ahead": True, "steps": CHUNK},
}
"""What `Changed` is given, by name."""
