"""What captured engines share: a step and a whole validation pass, each a CUDA graph replayed.

A small network is launched kernel by kernel from Python; most of an eager step is the host deciding
what to launch next. A replay launches the whole step at once. Everything a step needs lives on the
device: the epoch's order of windows, the position in it, the learning rate, the sum of losses. The
host waits for the device once an epoch.

Replays draw fresh dropout masks: torch registers its CUDA generator with a capture and moves it on
at every replay.
"""

from __future__ import annotations

import contextlib
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.compiled_network import torch_mode
from tuner.models.tsmixer import InPlace, SideStreams, TSMixer
from tuner.training.batching import batch_shapes, batches
from tuner.training.clock import unchanged_randomness
from tuner.training.engines.eager import Engine, Poll, TrainedEpoch
from tuner.training.model_state import Snapshot
from tuner.training.stage_marks import Stage
from tuner.training.step import Step, TrainingState

GraphMemory = Any
"""A pool of memory that captures allocate from: what `torch.cuda.graph_pool_handle` gives."""

WARM_UP_STEPS = 3
"""Per size of an update, before capture: libraries, workspaces and optimiser state exist then."""

N_BRANCHES = 3
"""Of the reference network: future covariates, and static ones in each of two blocks."""

VALIDATION_BATCH = 8192
"""Windows per forward pass of validation: the reference job's 6,586 in one."""


@functools.cache
def capture_streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    """The process's streams for captures on a device: for the main line, then for branches.

    Always the same ones: cuBLAS keeps a workspace of 32 MiB for every stream that it has ever seen.
    """
    with torch.cuda.device(device):
        return tuple(torch.cuda.Stream() for _ in range(1 + N_BRANCHES))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def captured(
    graph: torch.cuda.CUDAGraph, pool: GraphMemory, stream: torch.cuda.Stream
) -> Iterator[None]:
    """What is launched in here becomes the graph's, with its memory in the pool.

    As `torch.cuda.graph` does it, which looks for garbage before, and gives all free memory back to
    the device: it takes tenths of a second, and the next trial has to ask for that memory again.
    """
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin(pool)
        try:
            yield
        finally:
            graph.capture_end()


def _make_room(device: torch.device) -> None:
    """Give back what the steps before a capture left free, where that is more than others have.

    The capture needs as much again, in a pool of its own; and while it lasts nothing can be given
    back. Else it is kept: the next trial would have to ask for it again.
    """
    left = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free, _ = torch.cuda.mem_get_info(device)
    if left > free:
        torch.cuda.empty_cache()


class CapturedEngine(Engine, ABC):
    """Replays what its kind of step launches: a kind trains on a batch, validates, adds up losses.

    Args:
        config: of the training.
        data: on a CUDA device.
        step: what a training step changes, with every tensor of it in place for good.
        fallback: why this engine runs in place of the one asked for; empty where it is that one.
    """

    def __init__(
        self, config: RunConfig, data: DeviceData, step: TrainingState, fallback: str = ""
    ) -> None:
        self.fallback = fallback
        self._data = data
        self._state = step
        self._device = step.device
        self._n_windows = len(data.train)
        self._batch_size = min(config.hyperparameters.batch_size, self._n_windows)
        self._update_size = min(self._batch_size * config.accumulate, self._n_windows)
        self._order = torch.zeros(self._n_windows, dtype=torch.int64, device=self._device)
        self._steps: dict[int, torch.cuda.CUDAGraph] = {}
        self._validation: torch.cuda.CUDAGraph | None = None
        self._validation_mean = torch.zeros((), dtype=torch.float64, device=self._device)
        self.graph_memory: GraphMemory = None
        """Where captures allocate; None: where nobody else does."""

    @abstractmethod
    def _begin_epoch(self) -> None:
        """Back to the first of `self._order`, with no losses added up."""

    @abstractmethod
    def _train_batch(self, size: int) -> None:
        """One update by the next `size` windows of `self._order`, whose loss is added up."""

    @abstractmethod
    def _train_loss_sum(self) -> Tensor:
        """(), float64, a tensor of its own: the losses of the epoch's windows so far."""

    @abstractmethod
    def _validate(self) -> None:
        """Add up the losses of all validation windows, from 0."""

    @abstractmethod
    def _validation_loss_sum(self) -> Tensor:
        """(), float64: what that came to."""

    def warm_up(self) -> None:
        before = Snapshot(self.model)
        with torch.cuda.device(self._device), unchanged_randomness(self._device):
            stream = capture_streams(self._device)[0]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._run_everything_once()
            torch.cuda.current_stream().wait_stream(stream)
            _make_room(self._device)
            # The present stream is put back also after a capture whose end failed.
            with torch.cuda.stream(torch.cuda.current_stream()):
                self._capture(stream)
        before.restore(self.model)
        self._state.reset_optimizer()

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        self._state.set_learning_rate(learning_rate)
        self._order.copy_(order)
        self._begin_epoch()
        done = 0
        while done < self._n_windows:
            size = min(self._update_size, self._n_windows - done)
            self._steps[size].replay()
            done += size
            stopped = poll()
            if stopped is not None:
                return TrainedEpoch(self._train_loss_sum(), done, stopped)
        return TrainedEpoch(self._train_loss_sum(), done, None)

    def validation_loss(self) -> Tensor:
        assert self._validation is not None, "warm_up() captures the validation pass"
        self._validation.replay()
        return self._validation_mean

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        self._steps.clear()
        self._validation = None
        self._state.release()
        # Only here does the graphs' pool go back to the device; a worker runs thousands of trials.
        torch.cuda.empty_cache()

    def _run_everything_once(self) -> None:
        self.model.train()
        for size in batch_shapes(self._n_windows, self._update_size):
            for _ in range(WARM_UP_STEPS):
                self._begin_epoch()
                self._train_batch(size)
        self.model.eval()
        self._validate_to_mean()

    def _validate_to_mean(self) -> None:
        self._validate()
        self._validation_mean.copy_(self._validation_loss_sum() / len(self._data.val))

    def _capture(self, stream: torch.cuda.Stream) -> None:
        # One pool for all: replays never overlap, so what one graph frees the next may use.
        pool = torch.cuda.graph_pool_handle() if self.graph_memory is None else self.graph_memory
        self.model.train()
        for size in batch_shapes(self._n_windows, self._update_size):
            graph = torch.cuda.CUDAGraph()
            with captured(graph, pool, stream):
                self._train_batch(size)
            self._steps[size] = graph
        self.model.eval()
        self._validation = torch.cuda.CUDAGraph()
        with captured(self._validation, pool, stream):
            self._validate_to_mean()


# The engine that captures the plain step: the eager mathematics, kernel by kernel.


class GraphEngine(CapturedEngine):
    """Replays `Step` as CUDA graphs, with independent branches of the network side by side."""

    backend = Backend.GRAPH
    uses_branches = True

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, fallback: str = ""
    ) -> None:
        self._step = Step(config, data, model, capturable=True)
        super().__init__(config, data, self._step, fallback)
        self._position = torch.zeros((), dtype=torch.int64, device=self._device)
        self._offsets = torch.arange(self._update_size, device=self._device)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._validation_sum = torch.zeros((), dtype=torch.float64, device=self._device)

    def warm_up(self) -> None:
        if self.uses_branches and isinstance(self.model, TSMixer):
            self.model.branches = SideStreams(capture_streams(self._device)[1:])
        super().warm_up()

    def close(self) -> None:
        if isinstance(self.model, TSMixer):
            self.model.branches = InPlace()
        super().close()

    def _begin_epoch(self) -> None:
        self._position.zero_()
        self._loss_sum.zero_()

    def _train_batch(self, size: int) -> None:
        mark = self._step.mark
        mark(Stage.OTHER)
        index = self._order[self._position + self._offsets[:size]]
        # A mean over the windows: weighted by their number, a short last update counts for what it
        # is. All batches of an update are in one capture: their memory is used one after the other.
        self._loss_sum += self._step.train_on(self._data.train, index, self._batch_size) * size
        self._position += size
        mark(Stage.OTHER)

    def _train_loss_sum(self) -> Tensor:
        return self._loss_sum.clone()

    @torch.no_grad()
    def _validate(self) -> None:
        self._validation_sum.zero_()
        for index in batches(
            torch.arange(len(self._data.val), device=self._device), VALIDATION_BATCH
        ):
            self._validation_sum += self._step.loss(self._data.val.gather(index)) * len(index)

    def _validation_loss_sum(self) -> Tensor:
        return self._validation_sum


# The compiled engine: forward and loss through torch.compile, captured like the plain step.


RECOMPILES = 4096
"""A worker meets every size and mode of a search; beyond torch's limit of 8 it goes on eagerly."""


class CompiledEngine(GraphEngine):
    """Captures a step whose forward and loss are compiled, for exactly these shapes; where a term
    of the user's is added to the loss, the forward alone.
    """

    backend = Backend.COMPILE
    uses_branches = False  # the compiler orders the work itself, on one stream

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, fallback: str = ""
    ) -> None:
        super().__init__(config, data, model, fallback)
        mode = torch_mode(config.training.compile_mode)
        step = self._step
        if step.term is not None:  # the user's code runs as it is written
            step.predicted = torch.compile(step.predicted, dynamic=False, mode=mode)  # type: ignore[method-assign]
        else:
            step.loss = torch.compile(step.loss, dynamic=False, mode=mode)  # type: ignore[method-assign]

    def warm_up(self) -> None:
        with no_silent_fall_back():
            super().warm_up()


@contextlib.contextmanager
def no_silent_fall_back() -> Iterator[None]:
    """Every shape is compiled, or compiling fails: never eager without a word."""
    dynamo: Any = torch._dynamo.config  # noqa: SLF001 - torch's documented place for this setting
    with dynamo.patch(
        recompile_limit=RECOMPILES,
        accumulated_recompile_limit=RECOMPILES,
        fail_on_recompile_limit_hit=True,
    ):
        yield
