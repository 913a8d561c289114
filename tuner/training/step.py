"""One step of the protocol: forward, loss, backward, clipping, AdamW. Engines of torch run it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from tuner.config import Precision, RunConfig
from tuner.data.windows import Batch, DeviceData, DeviceSplit
from tuner.training.activations import CheckpointedNetwork
from tuner.training.batching import batches
from tuner.training.forecast_shape import refuse_other_shape
from tuner.training.loss_scale import LossScale
from tuner.training.model_state import copy_all, model_state, same_kind
from tuner.training.own_term import own_term
from tuner.training.quantile_loss import quantile_loss
from tuner.training.stage_marks import Mark, Stage, unmarked

CLIP_EPS = 1e-6
"""What torch's clip_grad_norm_ adds to the norm before it divides."""


class AdamW(torch.optim.AdamW):
    """torch's, without the wrappers around it that import torch's compiler: seconds of a
    process's first training. No engine compiles its optimiser.
    """

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


class TrainingState(ABC):
    """A network and its optimiser: what a training step changes, kept, put back and given up.

    Args:
        config: of the training.
        data: on its device.
        model: on the same device.
        capturable: the learning rate is a tensor on the device, so that a captured step reads what
            it is told between two epochs, and no tensor is ever replaced.
    """

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, *, capturable: bool
    ) -> None:
        self._config = config
        self.mark: Mark = unmarked
        self.model = model
        self.device = data.minimum.device
        self._capturable = capturable
        dtype = next(model.parameters()).dtype
        self._quantiles = torch.tensor(data.task.quantiles, device=self.device, dtype=dtype)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._learning_rate = torch.zeros((), device=self.device) if capturable else None
        self._optimizer = self._new_optimizer()

    @abstractmethod
    def _new_optimizer(self) -> torch.optim.Optimizer:
        """One that has seen nothing; its `state` is in the form of torch's AdamW."""

    def set_learning_rate(self, value: float) -> None:
        if self._learning_rate is not None:
            self._learning_rate.fill_(value)
            return
        for group in self._optimizer.param_groups:
            group["lr"] = value

    def reset_optimizer(self) -> None:
        """Back to an optimiser that has seen nothing: no gradients, moments or steps."""
        self._optimizer.zero_grad(set_to_none=True)
        if not self._capturable:
            self._optimizer = self._new_optimizer()
            return
        # A captured step writes to these very tensors: they are emptied, not replaced.
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()

    def state(self) -> dict[str, Tensor]:
        """Weights, buffers and the optimiser's moments of each parameter: the very tensors."""
        found = {f"model/{n}": tensor for n, tensor in enumerate(model_state(self.model))}
        for n, parameter in enumerate(self._parameters):
            gathered = self._optimizer.state.get(parameter, {})
            found |= {f"optimizer/{n}/{key}": tensor for key, tensor in gathered.items()}
        return found

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a `state`, in place: a captured step keeps writing to the tensors it knows.

        Raises:
            ValueError: it is another network's, and nothing was changed.
        """
        gathered = [
            _of_parameter(tensors, n, parameter) for n, parameter in enumerate(self._parameters)
        ]
        copy_all(model_state(self.model), tensors, "model")
        for parameter, given in zip(self._parameters, gathered, strict=True):
            held = self._optimizer.state[parameter] if given else {}
            for key, tensor in given.items():
                if key in held:
                    held[key].copy_(tensor)
                else:
                    held[key] = tensor.to(self.device, copy=True)

    def release(self) -> None:
        """Give back gradients and moments."""
        self._optimizer.zero_grad(set_to_none=True)
        self._optimizer.state.clear()


class Step(TrainingState):
    """The model's loss, and what a training step does with it.

    AdamW with clipped gradients, as the protocol has it; weight decay 0 makes it exactly Adam. In
    fp16 the loss is scaled, and gradients are clipped as they are without the scale.
    """

    def __init__(
        self, config: RunConfig, data: DeviceData, model: nn.Module, *, capturable: bool = False
    ) -> None:
        precision = config.training.precision
        self._scale = LossScale(data.minimum.device) if precision is Precision.FP16 else None
        super().__init__(config, data, model, capturable=capturable)
        self._half = torch.float16 if precision is Precision.FP16 else torch.bfloat16
        self._autocast = precision.half
        self._forecast: Callable[..., Tensor] = model
        if config.training.checkpoint_activations:
            self._forecast = CheckpointedNetwork(model)
        self.term = own_term(config, data, self._quantiles.dtype)

    def gathered(self, split: DeviceSplit, index: Tensor) -> Batch:
        """The windows with these numbers, (B,), with all that the training loss needs."""
        return split.gather(index, with_series=self.term is not None)

    def predicted(self, batch: Batch) -> Tensor:
        """(B, T, C, Q), scaled, in the precision of the weights."""
        with torch.autocast(self.device.type, dtype=self._half, enabled=self._autocast):
            prediction = self._forecast(batch.past, batch.future, batch.static)
        refuse_other_shape(prediction, batch.target, len(self._quantiles))
        return prediction.to(self._quantiles.dtype)

    def loss(self, batch: Batch) -> Tensor:
        """The protocol's loss on one batch: a scalar, in the model's precision."""
        return quantile_loss(self.predicted(batch), batch.target, self._quantiles)

    def training_loss(self, batch: Batch) -> Tensor:
        """That loss and the user's weighted term, where there is one: what is trained on alone."""
        if self.term is None:
            return self.loss(batch)
        prediction = self.predicted(batch)
        loss = quantile_loss(prediction, batch.target, self._quantiles)
        return loss + self.term(prediction, batch)

    def train(self, batch: Batch) -> Tensor:
        """One update of the weights; the loss before it, detached."""
        self.mark(Stage.DATA)  # whoever calls has just gathered it
        self._optimizer.zero_grad(set_to_none=True)
        self.mark(Stage.OPTIMISER)
        loss = self._backward(batch)
        self._update()
        return loss

    def train_on(self, split: DeviceSplit, index: Tensor, at_once: int) -> Tensor:
        """One update of the weights by the mean gradient of the windows `index` (N,), of which
        `at_once` go through the network together; their mean loss before it, detached.
        """
        if len(index) <= at_once:
            return self.train(self.gathered(split, index))
        self._optimizer.zero_grad(set_to_none=True)
        self.mark(Stage.OPTIMISER)
        mean = torch.zeros((), dtype=self._quantiles.dtype, device=self.device)
        for part in batches(index, at_once):
            # A mean over the part: weighted by its size, a short last one counts for what it is.
            batch = self.gathered(split, part)
            self.mark(Stage.DATA)
            mean += self._backward(batch, share=len(part) / len(index))
        self._update()
        return mean

    def _backward(self, batch: Batch, share: float = 1.0) -> Tensor:
        """Adds the batch's share of the gradient; its share of the loss, detached."""
        loss = self.training_loss(batch)
        if share != 1.0:
            loss = loss * share
        self.mark(Stage.FORWARD)
        (loss if self._scale is None else self._scale.scaled(loss)).backward()  # type: ignore[no-untyped-call]
        self.mark(Stage.BACKWARD)
        return loss.detach()

    def _update(self) -> None:
        """What the gradient does to the weights: nothing where it is skipped for its size."""
        if self._scale is not None:
            self._scale.unscale([p.grad for p in self._parameters if p.grad is not None])
            self._optimizer.found_inf = self._scale.found_inf  # type: ignore[attr-defined]
        self._clip()
        self._optimizer.step()
        if self._scale is not None:
            self._scale.update()
        self.mark(Stage.OPTIMISER)

    def reset_optimizer(self) -> None:
        super().reset_optimizer()
        if self._scale is not None:
            self._scale.reset()

    def state(self) -> dict[str, Tensor]:
        return super().state() | ({} if self._scale is None else self._scale.state())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        if self._scale is None:
            super().load(tensors)
            return
        self._scale.check(tensors)
        super().load(tensors)
        self._scale.load(tensors)

    def _clip(self) -> None:
        """Clip the gradient's norm; captured, by a divisor that the fused optimiser applies."""
        limit = self._config.training.gradient_clip
        if not self._capturable:
            nn.utils.clip_grad_norm_(self._parameters, limit)
            return
        norm = nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        self._optimizer.grad_scale = ((norm + CLIP_EPS) / limit).clamp(min=1.0)  # type: ignore[attr-defined]

    def _new_optimizer(self) -> AdamW:
        h = self._config.hyperparameters
        return AdamW(
            self._parameters,
            lr=h.learning_rate if self._learning_rate is None else self._learning_rate,
            weight_decay=h.weight_decay,
            fused=self.device.type in ("cpu", "cuda"),
            capturable=self._capturable,
        )


MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps of a parameter, beside the number of its steps."""


def _of_parameter(
    tensors: Mapping[str, Tensor], number: int, parameter: Tensor
) -> dict[str, Tensor]:
    """What a saved state holds of the optimiser on one parameter; nothing without a gradient."""
    found = {
        key: tensors[name]
        for key in ("step", *MOMENTS)
        if (name := f"optimizer/{number}/{key}") in tensors
    }
    if not found:
        return {}
    fits = (
        len(found) == 1 + len(MOMENTS)
        and found["step"].shape == ()
        and found["step"].is_floating_point()
    )
    if not fits or not all(same_kind(found[key], parameter) for key in MOMENTS):
        raise ValueError(f"what it holds of the optimiser does not fit parameter {number}")
    return found
