"""The engine that captures the plain step: the eager mathematics, kernel by kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.branches import InPlace, SideStreams
from tuner.models.tsmixer import TSMixer
from tuner.training.batching import batches
from tuner.training.engines.captured import VALIDATION_BATCH, CapturedEngine, capture_streams
from tuner.training.step import Step


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
        index = self._order[self._position + self._offsets[:size]]
        # A mean over the windows: weighted by their number, a short last update counts for what it
        # is. All batches of an update are in one capture: their memory is used one after the other.
        self._loss_sum += self._step.train_on(self._data.train, index, self._batch_size) * size
        self._position += size

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
