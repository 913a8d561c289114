"""Who competes in `cpu.py`: darts' network in a plain loop, our engines, and the bare matrix products of its step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.config import RunConfig
from tuner.data.windows import Batch, DeviceData
from tuner.models.registry import build_model
from tuner.training.batching import batches
from tuner.training.engines.eager import CompiledCpuEngine, EagerEngine

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


class Ours:
    """Steps and validation as `fit` runs them, with PyTorch's operations."""

    engine_of: type[EagerEngine] = EagerEngine

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        self._config, self._orders = config, orders
        self.engine = self.engine_of(
            config, data, build_model(config.architecture, data.shapes, config.hyperparameters)
        )

    def train(self) -> None:
        self.engine.train_epoch(
            self._orders, self._config.hyperparameters.learning_rate, lambda: None
        )

    def validate(self) -> None:
        self.engine.validation_loss()


class Compiled(Ours):
    """The same with the C++ kernels between the products, as `auto` takes them at these sizes."""

    engine_of = CompiledCpuEngine


class Darts:
    """darts' network, loss, Adam and clipping; the batches come from the same gather as ours."""

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        from darts.utils.likelihood_models.torch import QuantileRegression

        self._data, self._orders = data, orders
        self._size = config.hyperparameters.batch_size
        self._likelihood = QuantileRegression(list(data.task.quantiles))
        self.network = darts_network(data, config, self._likelihood)
        self._adam = torch.optim.Adam(
            self.network.parameters(), lr=config.hyperparameters.learning_rate
        )

    def _loss(self, batch: Batch) -> Tensor:
        from darts.utils.data.torch_datasets.utils import PLModuleInput

        n_targets = self._data.shapes.n_targets
        inputs = PLModuleInput(
            past_target=batch.past[..., :n_targets],
            past_covariates=None,
            historic_future_covariates=batch.past[..., n_targets:],
            future_covariates=batch.future,
            static_covariates=None if batch.static is None else batch.static.unsqueeze(1),
        )
        prediction = self.network(inputs).prediction
        loss: Tensor = self._likelihood.compute_loss(prediction, batch.target, sample_weight=None)
        return loss

    def train(self) -> None:
        self.network.train()
        for index in batches(self._orders, self._size):
            self._adam.zero_grad()
            self._loss(self._data.train.gather(index)).backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self._adam.step()

    @torch.no_grad()
    def validate(self) -> None:
        self.network.eval()
        for index in batches(torch.arange(len(self._data.val)), self._size):
            self._loss(self._data.val.gather(index))


def darts_network(data: DeviceData, config: RunConfig, likelihood: Any) -> nn.Module:
    """Built by darts' own model class from the shapes of one training sample, as its fit does."""
    from darts.models import TSMixerModel
    from darts.utils.data.torch_datasets.utils import TorchTrainingSample

    logging.getLogger("darts").setLevel(logging.WARNING)
    shapes, h = data.shapes, config.hyperparameters
    model = TSMixerModel(
        input_chunk_length=shapes.input_size,
        output_chunk_length=shapes.horizon,
        hidden_size=h.hidden_size,
        ff_size=h.hidden_size,
        dropout=h.dropout,
        use_reversible_instance_norm=True,
        likelihood=likelihood,
    )

    def zeros(rows: int, columns: int) -> np.ndarray:
        return np.zeros((rows, columns), dtype=np.float32)

    model.train_sample = TorchTrainingSample(
        past_target=zeros(shapes.input_size, shapes.n_targets),
        past_covariates=None,
        historic_future_covariates=zeros(shapes.input_size, shapes.n_future),
        future_covariates=zeros(shapes.horizon, shapes.n_future),
        static_covariates=zeros(1, shapes.n_static),
        future_target=zeros(shapes.horizon, shapes.n_targets),
    )
    network: nn.Module = model._init_model()  # noqa: SLF001 - what its fit calls
    return network


class _Recorder(TorchDispatchMode):
    """Notes the matrix products that run inside, with operands like theirs, to run again."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Callable[[], Tensor]] = []
        self.flop = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in PRODUCTS:
            left, right = args[-2:]
            out = torch.empty_like(result)
            form = torch.bmm if left.dim() == 3 else torch.mm
            # Expanded and transposed operands stay so: the library reads them in place.
            left, right = (t.detach() if 0 in t.stride() else _like(t) for t in (left, right))
            self.products.append(lambda: form(left, right, out=out))
            self.flop += 2 * result.numel() * left.shape[-1]
        return result


def _like(tensor: Tensor) -> Tensor:
    copy = torch.empty_strided(tensor.shape, tensor.stride())
    return copy.copy_(tensor.detach())


class Floor:
    """The products of one step, and of one validation batch, replayed as often as there are steps and batches."""

    def __init__(self, data: DeviceData, config: RunConfig, orders: Tensor) -> None:
        ours = Ours(data, config, orders[: config.hyperparameters.batch_size])
        ours.train()
        with _Recorder() as self._step:
            ours.train()
        self._n_steps = len(list(batches(orders, config.hyperparameters.batch_size)))
        with _Recorder() as self._validation:
            ours.validate()
        self.gflop = self._step.flop / 1e9

    def train(self) -> None:
        for _ in range(self._n_steps):
            for product in self._step.products:
                product()

    def validate(self) -> None:
        for product in self._validation.products:
            product()


CONTENDERS = {"darts": Darts, "eager": Ours, "compile": Compiled, "floor": Floor}
