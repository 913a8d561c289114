"""The protocol's step on fused kernels: what `Step` computes, in a tenth of the launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from tuner.config import RunConfig
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.kernels import PLAIN, FusedTSMixer, Launching, Scoring
from tuner.kernels.step_kernels import FlatAdamW, FlatParameters, LossSum, gather, score
from tuner.models.tsmixer import TSMixer
from tuner.training.model_state import Snapshot, copy_together, model_state
from tuner.training.stage_marks import Stage
from tuner.training.step import TrainingState

RANDOM_STATE = "fused/random_state"
"""What the masks of dropout follow from, beside the weights and the moments in a saved state."""


class Network(Protocol):
    """Computes a model's forecast, and gives that model's parameters their gradients."""

    @property
    def random_state(self) -> Tensor | None:
        """What its masks of dropout follow from; None where that is torch's own generator."""

    def __call__(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S) -> (B, T, C, Q) of float32."""


class FusedStep(TrainingState):
    """Trains the float32 parameters of a model. They lie in one buffer until `release`.

    One that the forecast does not depend on has a gradient of zero here, and decays; torch's
    optimiser passes it over.

    Args:
        config: of the training.
        data: on its device, float32.
        model: on the same device.
        make_network: gives what computes the model's forecast, once the parameters are where they
            stay.
        launching: how its kernels follow each other.
    """

    _optimizer: FlatAdamW

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: nn.Module,
        make_network: Callable[[], Network],
        launching: Launching = PLAIN,
    ) -> None:
        self._launching = launching
        self._flat = FlatParameters([p for p in model.parameters() if p.requires_grad])
        super().__init__(config, data, model, capturable=True)
        self._network = make_network()
        state = self._network.random_state
        self._first_random_state = None if state is None else state.clone()

    def train(self, split: DeviceSplit, order: Tensor, size: int, losses: LossSum) -> None:
        """One update of the weights, by the `size` windows of `order` (N,) after those counted."""
        if isinstance(self._network, FusedTSMixer):
            self._train_fused(self._network, split, order, size, losses)
            return
        batch = gather(split, order, losses.done, size, self._launching)
        self.mark(Stage.DATA)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        slope = torch.empty_like(forecast)
        score(
            forecast.detach(),
            batch.target,
            self._quantiles,
            losses,
            slope=slope,
            launching=self._launching,
        )
        self.mark(Stage.FORWARD)
        gradients = torch.autograd.grad(forecast, self._parameters, slope, materialize_grads=True)
        self.mark(Stage.BACKWARD)
        self._optimizer.take(gradients)
        self._optimizer.step()
        self.mark(Stage.OPTIMISER)

    def _train_fused(
        self, network: FusedTSMixer, split: DeviceSplit, order: Tensor, size: int, losses: LossSum
    ) -> None:
        """The same without autograd: masks drawn with the windows, the loss taken in the head.

        The gradient's squares are summed with the gradient. The kernel that takes the loss begins
        the way back: what it does counts as forward.
        """
        begun = network.begin(size)
        batch = gather(split, order, losses.done, size, self._launching, begun.drawing)
        self.mark(Stage.DATA)
        scoring = Scoring(batch.target, self._quantiles, losses.parts, losses.done)
        inputs = (batch.past, batch.future, batch.static)
        gradient = network.gradient(
            begun,
            inputs,
            scoring,
            self._optimizer.squares,
            loss_taken=lambda: self.mark(Stage.FORWARD),
        )
        self.mark(Stage.BACKWARD)
        self._optimizer.update(gradient)
        self.mark(Stage.OPTIMISER)

    @torch.no_grad()
    def validate(self, split: DeviceSplit, order: Tensor, size: int, losses: LossSum) -> None:
        """Only adds the losses of the next `size` windows to `losses`."""
        batch = gather(split, order, losses.done, size, self._launching)
        forecast = self._network(batch.past, batch.future, batch.static).contiguous()
        score(forecast, batch.target, self._quantiles, losses, launching=self._launching)

    @torch.no_grad()
    def renew(self, config: RunConfig, model: TSMixer) -> None:
        """Begin another training of the same sizes, in place, with the fused network in it.

        It differs in learning rate, weight decay, clipping, dropout and seed: torch's present one.

        Args:
            config: of that training.
            model: its network on the CPU, as built.

        Raises:
            ValueError: a network of other sizes, or one that drops out and this does not.
        """
        assert isinstance(self._network, FusedTSMixer), "no other network reads its dropout"
        self._config = config
        self._flat.fill([p for p in model.parameters() if p.requires_grad])
        copy_together(list(self.model.buffers()), list(model.buffers()))
        self._network.begin_draws(model.past_mixing.dropout)
        self._first_random_state = self._network.random_state.clone()
        self.reset_optimizer()

    def forget_batch(self) -> None:
        """Let go of what the latest pass left for whoever looks at its masks."""
        if isinstance(self._network, FusedTSMixer):
            self._network.last_masks = None

    def snapshot(self) -> Snapshot:
        """A copy of the model as it is now."""
        return FlatSnapshot(self.model, self._flat)

    def reset_optimizer(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None  # `zero_grad` would import torch's compiler: a second
        self._optimizer.reset(
            weight_decay=self._config.hyperparameters.weight_decay,
            limit=self._config.training.gradient_clip,
        )
        if self._network.random_state is not None and self._first_random_state is not None:
            self._network.random_state.copy_(self._first_random_state)

    def state(self) -> dict[str, Tensor]:
        state = self._network.random_state
        return super().state() | ({} if state is None else {RANDOM_STATE: state})

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Also a `Step`'s state: it lacks these kernels' random state, which stays as it is."""
        steps = [float(tensor) for name, tensor in tensors.items() if name.endswith("/step")]
        if len(set(steps)) > 1 or len(steps) not in (0, len(self._parameters)):
            raise ValueError("its parameters took different numbers of steps")
        held = self._network.random_state
        given = None if held is None else tensors.get(RANDOM_STATE, held)
        if (
            held is not None
            and given is not None
            and (given.shape != held.shape or given.dtype != held.dtype)
        ):
            raise ValueError("the random state of the fused kernels does not fit")
        super().load(tensors)
        if held is not None and given is not None:
            held.copy_(given)

    def release(self) -> None:
        self._flat.release()
        self.discard()

    def discard(self) -> None:
        """Release that leaves the model's parameters where they are: it is given up, too."""
        super().release()
        del self._optimizer, self._network, self._flat  # and with them their buffers

    def _new_optimizer(self) -> FlatAdamW:
        assert self._learning_rate is not None, "it is captured"
        return FlatAdamW(
            self._flat,
            self._learning_rate,
            weight_decay=self._config.hyperparameters.weight_decay,
            limit=self._config.training.gradient_clip,
            launching=self._launching,
        )


class FlatSnapshot(Snapshot):
    """Of a model most of whose parameters lie in one buffer: that is taken in one copy.

    Its copies lie as the parameters do.
    """

    def __init__(self, model: nn.Module, flat: FlatParameters) -> None:
        self._flat = flat
        self._values = flat.values.clone()
        views = flat.layout.views(self._values, flat.parameters)
        places = {
            id(parameter): view for parameter, view in zip(flat.parameters, views, strict=True)
        }
        self._copies = []
        self._apart: list[int] = []
        """Numbers of what does not lie there: buffers, and parameters that are not trained."""
        for number, tensor in enumerate(model_state(model)):
            if (view := places.get(id(tensor))) is None:
                self._apart.append(number)
                view = tensor.detach().clone()
            self._copies.append(view)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        self._values.copy_(self._flat.values)
        if self._apart:
            present = model_state(model)
            copy_together([self._copies[n] for n in self._apart], [present[n] for n in self._apart])
