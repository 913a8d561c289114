"""The captured engine: a training step, and a whole validation pass, each recorded once as a CUDA graph and replayed.

A small network is launched kernel by kernel from Python; most of an eager step is the host deciding what to launch
next. A replay launches the whole step at once. Everything a step needs lives on the device: the epoch's order of
windows, the position in it, the learning rate, the sum of losses. The host waits for the device once an epoch.

Replays draw fresh dropout masks: torch registers its CUDA generator with a capture and moves it on at every replay.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.branches import InPlace, SideStreams
from tuner.models.tsmixer import TSMixer
from tuner.training.batching import batch_shapes, batches
from tuner.training.engine import Poll, TrainedEpoch
from tuner.training.snapshot import Snapshot
from tuner.training.step import Step
from tuner.training.surroundings import unchanged_randomness

WARM_UP_STEPS = 3
"""Per batch shape, before capture: library handles, workspaces and optimiser state must exist by then."""

N_BRANCHES = 3
"""For the branches of the reference network: future covariates, and static ones in each of two blocks."""

VALIDATION_BATCH = 8192
"""Windows per forward pass of validation: the reference job's 6,586 in one."""


@functools.cache
def capture_streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    """The process's streams for captures on a device: one for the main line, the others for branches.

    Always the same ones: cuBLAS keeps a workspace of 32 MiB for every stream that it has ever seen.
    """
    with torch.cuda.device(device):
        return tuple(torch.cuda.Stream() for _ in range(1 + N_BRANCHES))  # type: ignore[no-untyped-call]


class GraphEngine:
    """Replays `Step` as CUDA graphs; the same mathematics as `EagerEngine`, kernel by kernel."""

    backend = Backend.GRAPH
    uses_branches = True

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        self._data = data
        self._step = Step(config, data, model, capturable=True)
        self._device = self._step.device
        self._n_windows = len(data.train)
        self._batch_size = min(config.hyperparameters.batch_size, self._n_windows)
        self._order = torch.zeros(self._n_windows, dtype=torch.int64, device=self._device)
        self._position = torch.zeros((), dtype=torch.int64, device=self._device)
        self._offsets = torch.arange(self._batch_size, device=self._device)
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._validation_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._steps: dict[int, torch.cuda.CUDAGraph] = {}
        self._validation: torch.cuda.CUDAGraph | None = None

    @property
    def model(self) -> nn.Module:
        return self._step.model

    def warm_up(self) -> None:
        before = Snapshot(self.model)
        with torch.cuda.device(self._device), unchanged_randomness(self._device):
            stream, *side = capture_streams(self._device)
            if self.uses_branches and isinstance(self.model, TSMixer):
                self.model.branches = SideStreams(side)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._run_everything_once()
            torch.cuda.current_stream().wait_stream(stream)
            self._capture(stream)
        before.restore(self.model)
        self._step.forget()

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        self._step.set_learning_rate(learning_rate)
        self._order.copy_(order)
        self._position.zero_()
        self._loss_sum.zero_()
        done = 0
        while done < self._n_windows:
            size = min(self._batch_size, self._n_windows - done)
            self._steps[size].replay()
            done += size
            stopped = poll()
            if stopped is not None:
                return TrainedEpoch(self._loss_sum.clone(), done, stopped)
        return TrainedEpoch(self._loss_sum.clone(), done, None)

    def validation_loss(self) -> Tensor:
        assert self._validation is not None, "warm_up() captures the validation pass"
        self._validation.replay()
        return self._validation_sum / len(self._data.val)

    def state(self) -> dict[str, Tensor]:
        return self._step.state()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._step.load(tensors)

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        self._steps.clear()
        self._validation = None
        if isinstance(self.model, TSMixer):
            self.model.branches = InPlace()
        self._step.release()
        # The graphs' private pool is only returned to the device here; a worker runs thousands of trials.
        torch.cuda.empty_cache()

    def _run_everything_once(self) -> None:
        self.model.train()
        for size in batch_shapes(self._n_windows, self._batch_size):
            for _ in range(WARM_UP_STEPS):
                self._position.zero_()
                self._train_batch(size)
        self.model.eval()
        self._validate()

    def _capture(self, stream: torch.cuda.Stream) -> None:
        # One pool for all: replays never overlap, so what one graph frees the next may use.
        pool = torch.cuda.graph_pool_handle()
        self.model.train()
        for size in batch_shapes(self._n_windows, self._batch_size):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                self._train_batch(size)
            self._steps[size] = graph
        self.model.eval()
        self._validation = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._validation, pool=pool, stream=stream):
            self._validate()

    def _train_batch(self, size: int) -> None:
        index = self._order[self._position + self._offsets[:size]]
        # The loss is a mean over the batch: weighted by its size, a short last batch counts for what it is.
        self._loss_sum += self._step.train(self._data.train.gather(index)) * size
        self._position += size

    @torch.no_grad()
    def _validate(self) -> None:
        self._validation_sum.zero_()
        for index in batches(torch.arange(len(self._data.val), device=self._device), VALIDATION_BATCH):
            self._validation_sum += self._step.loss(self._data.val.gather(index)) * len(index)
