"""The plain engine: one PyTorch operation after the other. Faster engines must agree with it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tuner.config import Backend, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.kernels.host_kernels import HostKernels, library
from tuner.models.dropout import Elementwise, PlainElementwise
from tuner.models.tsmixer import FeatureMixing, TimeMixing, TSMixer
from tuner.training.batching import batch_shapes, batches
from tuner.training.determinism import unchanged_randomness
from tuner.training.engines.interface import Poll, TrainedEpoch
from tuner.training.host_memory import give_back_freed_memory, keep_freed_memory
from tuner.training.model_state import Snapshot
from tuner.training.stage_marks import Mark, Stage
from tuner.training.step import Step

WARM_UP_STEPS = 2
"""Per size of an update: the first allocates state and loads kernels, the second runs as all
others."""

VALIDATION_BATCH = {"cpu": 256, "cuda": 2048}
"""Windows per validation pass. The loss does not depend on it; small batches suit CPU caches."""


class EagerEngine:
    """Runs `Step` update by update, from Python."""

    backend = Backend.EAGER
    fallback = ""

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, fallback: str = ""
    ) -> None:
        self.fallback = fallback or self.fallback
        self._data = data
        self._step = Step(config, data, model)
        self._device = self._step.device
        if self._device.type == "cpu":
            keep_freed_memory()
        self._batch_size = config.hyperparameters.batch_size
        self._update_size = self._batch_size * config.accumulate
        self._validation_batch = VALIDATION_BATCH.get(self._device.type, 256)

    @property
    def model(self) -> nn.Module:
        return self._step.model

    def warm_up(self) -> None:
        n_train, n_val = len(self._data.train), len(self._data.val)
        before = Snapshot(self.model)
        with unchanged_randomness(self._device):
            self.model.train()
            for size in batch_shapes(n_train, self._update_size):
                index = torch.arange(size, device=self._device)
                for _ in range(WARM_UP_STEPS):
                    self._step.train_on(self._data.train, index, self._batch_size)
            self.model.eval()
            for size in batch_shapes(n_val, self._validation_batch):
                with torch.no_grad():
                    self._step.loss(self._data.val.gather(torch.arange(size, device=self._device)))
        before.restore(self.model)
        self._step.reset_optimizer()

    def mark_with(self, mark: Mark) -> None:
        self._step.mark = mark

    def train_epoch(self, order: Tensor, learning_rate: float, poll: Poll) -> TrainedEpoch:
        mark = self._step.mark
        self._step.set_learning_rate(learning_rate)
        self.model.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        n_windows = 0
        for index in batches(order, self._update_size):
            # A mean over the windows: weighted by their number, a short last update counts for
            # what it is.
            loss = self._step.train_on(self._data.train, index, self._batch_size)
            loss_sum += loss * len(index)
            n_windows += len(index)
            stopped = poll()
            mark(Stage.OTHER)
            if stopped is not None:
                return TrainedEpoch(loss_sum, n_windows, stopped)
        return TrainedEpoch(loss_sum, n_windows, None)

    @torch.no_grad()
    def validation_loss(self) -> Tensor:
        self.model.eval()
        n_windows = len(self._data.val)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        for index in batches(torch.arange(n_windows, device=self._device), self._validation_batch):
            loss_sum += self._step.loss(self._data.val.gather(index)) * len(index)
        return loss_sum / n_windows

    def snapshot(self) -> Snapshot:
        return Snapshot(self.model)

    def state(self) -> dict[str, Tensor]:
        return self._step.state()

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._step.load(tensors)

    def close(self) -> None:
        self._step.release()
        if self._device.type == "cpu":
            give_back_freed_memory()


# The plain step on a CPU, with the elementwise work of the network in compiled C++ kernels.


class CompiledCpuEngine(EagerEngine):
    """`EagerEngine`, but for what stands between the products.

    Raises:
        TunerError: the kernels cannot be built.
    """

    backend = Backend.COMPILE

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        super().__init__(config, data, model)
        _mix_with(model, HostKernels(library()))

    def close(self) -> None:
        _mix_with(self.model, PlainElementwise())
        super().close()


def why_not_compiled(model: nn.Module, precision: Precision) -> str | None:
    """Why the kernels do not serve this network, in one line; None where they do."""
    if type(model) is not TSMixer:  # one derived from it may mix otherwise
        return "the kernels for a CPU serve the built-in networks only"
    if precision is not Precision.FP32:
        return "the kernels for a CPU compute in fp32 only"
    return None


def _mix_with(model: nn.Module, elementwise: Elementwise) -> None:
    for module in model.modules():
        if isinstance(module, TimeMixing | FeatureMixing):
            module.elementwise = elementwise
