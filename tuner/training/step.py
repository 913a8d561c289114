"""One step of the protocol: forward, loss, backward, clipping, AdamW. Engines of torch run it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tuner.config import Precision, RunConfig
from tuner.data.windows import Batch, DeviceData, DeviceSplit
from tuner.models.frozen_part import frozen_parts
from tuner.models.layers import Grouped
from tuner.training.batching import batches
from tuner.training.model_state import copy_all, model_state, same_kind
from tuner.training.own_term import own_term
from tuner.training.quantile_loss import quantile_loss, refuse_other_shape
from tuner.training.stage_marks import Mark, Stage, unmarked

# Activation checkpointing: a network's blocks keep their inputs only, and what a backward pass
# needs of their insides is computed again.


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """What is computed again, in the order in which the network has them."""
    found = [each for part in (model, *frozen_parts(model)) for each in _repeated(part)]
    return found or list(model.children())


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    """Blocks in the outermost lists below a module; a list in a list is looked into, groups are
    computed again as a whole.
    """
    for child in module.children():
        if isinstance(child, Grouped):
            yield child
        elif _is_list(module) and not _is_list(child):
            if any(True for _ in child.children()):
                yield child
        else:
            yield from _repeated(child)


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.Sequential)


class CheckpointedNetwork:
    """Calls a network with its blocks checkpointed; the network itself stays as it is."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._blocks = blocks_of(model)

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """The network's forecast; without gradients there is nothing to keep."""
        if not torch.is_grad_enabled():
            plain: Tensor = self._model(*inputs)
            return plain
        with _in_place_of(self._blocks, next(self._model.parameters()).device):
            forecast: Tensor = self._model(*inputs)
        return forecast


@contextlib.contextmanager
def _in_place_of(blocks: list[nn.Module], device: torch.device) -> Iterator[None]:
    """The blocks' forward passes are checkpointed ones in here."""
    # An attribute of the instance, found before the class's method; maybe there was one before.
    before = [vars(block).get("forward") for block in blocks]
    try:
        for block in blocks:
            vars(block)["forward"] = functools.partial(_checkpointed, block, block.forward, device)
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            vars(block).pop("forward", None)
            if forward is not None:
                vars(block)["forward"] = forward


def _checkpointed(
    block: nn.Module,
    forward: Callable[..., Any],
    device: torch.device,
    *arguments: Any,
    **named: Any,
) -> Any:
    buffers, random = _buffers(block), _random_state(device)

    def contexts() -> tuple[Context, Context]:
        return contextlib.nullcontext(), _as_then(buffers, random, device)

    # torch would look for the device in positional arguments only, and keep no other's state.
    return checkpoint(
        forward,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=contexts,
        **named,
    )


Context = contextlib.AbstractContextManager[Any]
Buffers = list[tuple[dict[str, Tensor | None], str, Tensor]]
"""Where a buffer is held, its name there, and a copy of it."""


def _buffers(block: nn.Module) -> Buffers:
    """Copies of all that a block has, as they are now."""
    return [
        (module._buffers, name, buffer.detach().clone())  # noqa: SLF001 - to exchange, not to write
        for module in block.modules()
        for name, buffer in module._buffers.items()  # noqa: SLF001
        if buffer is not None
    ]


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Of the CPU's generator, and of the device's."""
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), on_device


@contextlib.contextmanager
def _as_then(
    buffers: Buffers, random: tuple[Tensor, Tensor | None], device: torch.device
) -> Iterator[None]:
    """With these buffers and random numbers in here; the present ones are put back, untouched.

    A buffer is exchanged, not written to: written to, what autograd saved of it would be of no use.
    """
    own = [(held, name, held[name]) for held, name, _ in buffers]
    devices = [] if random[1] is None else [device]
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(random[0])
        if random[1] is not None:
            torch.cuda.set_rng_state(random[1], device)
        for held, name, copy in buffers:
            held[name] = copy
        try:
            yield
        finally:
            for held, name, buffer in own:
                held[name] = buffer


# The scale of an fp16 training's loss, as torch.amp.GradScaler has it, all of it on the device.


INITIAL = 65536.0
GROWTH = 2.0
BACKOFF = 0.5
GROWTH_INTERVAL = 2000
"""Updates in a row without one that is skipped, after which the scale grows."""

SCALE = "loss_scale/scale"
GROWN = "loss_scale/since_growth"
OF_UPDATES = "/step"
"""How names end under which an optimiser's state counts the updates that were not skipped."""


def skipped_all(state: Mapping[str, Tensor]) -> bool:
    """Whether a training in fp16 that is over trained nothing: each of its updates was skipped.

    Args:
        state: of the engine that trained.
    """
    scale = state.get(SCALE)
    if scale is None or float(scale) >= INITIAL:
        return False
    return not any(name.endswith(OF_UPDATES) and float(each) for name, each in state.items())


class LossScale:
    """Of one training, on its device. Nothing here waits for the device, so it can be captured."""

    def __init__(self, device: torch.device) -> None:
        self._scale = torch.full((), INITIAL, dtype=torch.float32, device=device)
        self._since = torch.zeros((), dtype=torch.int32, device=device)
        self.found_inf = torch.zeros((), dtype=torch.float32, device=device)
        """1 where the present gradients are to be skipped: fused optimisers look it up."""

    def scaled(self, loss: Tensor) -> Tensor:
        """What the backward pass begins with."""
        return loss * self._scale

    @torch.no_grad()
    def unscale(self, gradients: Sequence[Tensor]) -> None:
        """Divide gradients by the scale, in place, and note whether one is no finite number."""
        self.found_inf.zero_()
        inverse = self._scale.double().reciprocal().float()
        alike: dict[torch.dtype, list[Tensor]] = {}
        for gradient in gradients:
            alike.setdefault(gradient.dtype, []).append(gradient)
        for of_a_type in alike.values():
            torch._amp_foreach_non_finite_check_and_unscale_(of_a_type, self.found_inf, inverse)

    @torch.no_grad()
    def update(self) -> None:
        """After the update, or in its place: the scale of the next one."""
        torch._amp_update_scale_(
            self._scale, self._since, self.found_inf, GROWTH, BACKOFF, GROWTH_INTERVAL
        )

    def reset(self) -> None:
        """As before the first update."""
        self._scale.fill_(INITIAL)
        self._since.zero_()

    def state(self) -> dict[str, Tensor]:
        """The very tensors, by name."""
        return {SCALE: self._scale, GROWN: self._since}

    @staticmethod
    def check(tensors: Mapping[str, Tensor]) -> None:
        """Raises ValueError where a saved state holds no scale."""
        for name, dtype in ((SCALE, torch.float32), (GROWN, torch.int32)):
            found = tensors.get(name)
            if found is None or found.shape != () or found.dtype != dtype:
                raise ValueError("it holds no scale of the loss, which fp16 needs")

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a `state` that was checked, in place."""
        self._scale.copy_(tensors[SCALE])
        self._since.copy_(tensors[GROWN])


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

    def part_of(self, index: Tensor) -> Tensor:
        """Of the windows that go through the network together, those that do so here: all."""
        return index

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
