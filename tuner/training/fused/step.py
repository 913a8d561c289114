"""The protocol's step on fused kernels: what `tuner.training.step.Step` computes, in a tenth of the launches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from tuner.config import RunConfig
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.models.fused import FusedTSMixer
from tuner.models.tsmixer import TSMixer
from tuner.training.fused.adamw import FlatAdamW
from tuner.training.fused.flat import FlatParameters
from tuner.training.fused.gather import gather
from tuner.training.fused.loss import Tally, score
from tuner.training.step import Updates

RANDOM_STATE = "fused/random_state"
"""What the masks of dropout follow from, beside the weights and the moments in a saved state."""


class FusedStep(Updates):
    """Trains a network that `why_not` has nothing against. Its parameters lie in one buffer until `release`."""

    _optimizer: FlatAdamW

    def __init__(self, config: RunConfig, data: DeviceData, model: TSMixer) -> None:
        self._flat = FlatParameters([p for p in model.parameters() if p.requires_grad])
        super().__init__(config, data, model, capturable=True)
        self._network = FusedTSMixer(model, config.training.precision)
        self._first_random_state = self._network.random_state.clone()

    def train(self, split: DeviceSplit, order: Tensor, size: int, tally: Tally) -> None:
        """One update of the weights, by the `size` windows of `order` (N,) that follow those in the tally."""
        batch = gather(split, order, tally.done, size)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        slope = torch.empty_like(forecast)
        score(forecast.detach(), batch.target, self._quantiles, tally, slope=slope)
        self._optimizer.take(torch.autograd.grad(forecast, self._parameters, slope))
        self._optimizer.step()

    @torch.no_grad()
    def validate(self, split: DeviceSplit, order: Tensor, size: int, tally: Tally) -> None:
        """Only adds the losses of the next `size` windows to the tally."""
        batch = gather(split, order, tally.done, size)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        score(forecast, batch.target, self._quantiles, tally)

    def forget(self) -> None:
        super().forget()
        self._network.random_state.copy_(self._first_random_state)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {RANDOM_STATE: self._network.random_state}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Also a `Step`'s state, which has no random state of these kernels: theirs then stays as it is."""
        steps = [float(tensor) for name, tensor in tensors.items() if name.endswith("/step")]
        if len(set(steps)) > 1 or len(steps) not in (0, len(self._parameters)):
            raise ValueError("its parameters took different numbers of steps")
        random_state = tensors.get(RANDOM_STATE, self._network.random_state)
        if random_state.shape != self._network.random_state.shape or random_state.dtype != torch.int64:
            raise ValueError("the random state of the fused kernels does not fit")
        super().load(tensors)
        self._network.random_state.copy_(random_state)

    def release(self) -> None:
        super().release()
        self._flat.release()
        del self._optimizer, self._network, self._flat  # and with them their buffers

    def _new_optimizer(self) -> FlatAdamW:
        assert self._learning_rate is not None, "it is captured"
        return FlatAdamW(
            self._flat,
            self._learning_rate,
            weight_decay=self._config.hyperparameters.weight_decay,
            limit=self._config.training.gradient_clip,
        )
