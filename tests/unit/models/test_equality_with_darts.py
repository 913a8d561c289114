"""`original` is the same function as darts' TSMixer, and `simple` as `original`; gradients too."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from darts.models import TSMixerModel
from darts.utils.data.torch_datasets.utils import PLModuleInput, TorchTrainingSample
from darts.utils.likelihood_models.torch import QuantileRegression
from torch import Tensor, nn

from tests.support.present import present
from tests.support.weight_map import darts_to_original, original_to_simple
from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.models.registry import build_model
from tuner.training.quantile_loss import quantile_loss

QUANTILES = [
    0.01,
    0.05,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.95,
    0.99,
]
PROTOCOL = ModelShapes(
    input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
)
BATCH = 5


@dataclass(frozen=True)
class Case:
    shapes: ModelShapes
    hidden_size: int


def _shapes(**changes: Any) -> ModelShapes:
    sizes = {
        "input_size": 48,
        "horizon": 12,
        "n_targets": 3,
        "n_past": 2,
        "n_future": 4,
        "n_static": 2,
        "n_quantiles": 17,
    }
    return ModelShapes(**{**sizes, **changes})


CASES = {
    "the protocol": Case(PROTOCOL, 64),
    "hidden 32": Case(PROTOCOL, 32),
    "hidden 128": Case(PROTOCOL, 128),
    "other sizes, with past covariates": Case(_shapes(), 16),
    "long horizon, one target": Case(_shapes(input_size=36, horizon=48, n_targets=1), 24),
    "no static covariate": Case(_shapes(n_static=0), 16),
    "no future covariates": Case(_shapes(n_future=0), 16),
    "targets alone": Case(_shapes(n_past=0, n_future=0, n_static=0), 16),
    "as many covariates as hidden features": Case(_shapes(n_future=16), 16),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    given: Case = request.param
    return given


def darts_network(case: Case) -> nn.Module:
    """Built by darts' own model class from a training sample, as its fit does."""
    logging.getLogger("darts").setLevel(logging.WARNING)
    shapes = case.shapes
    model = TSMixerModel(
        input_chunk_length=shapes.input_size,
        output_chunk_length=shapes.horizon,
        hidden_size=case.hidden_size,
        ff_size=case.hidden_size,
        use_reversible_instance_norm=True,
        likelihood=QuantileRegression(QUANTILES),
    )

    def zeros(rows: int, columns: int) -> np.ndarray | None:
        return np.zeros((rows, columns), dtype=np.float32) if columns else None

    model.train_sample = TorchTrainingSample(
        past_target=zeros(shapes.input_size, shapes.n_targets),
        past_covariates=zeros(shapes.input_size, shapes.n_past),
        historic_future_covariates=zeros(shapes.input_size, shapes.n_future),
        future_covariates=zeros(shapes.horizon, shapes.n_future),
        static_covariates=zeros(1, shapes.n_static),
        future_target=zeros(shapes.horizon, shapes.n_targets),
    )
    network: nn.Module = model._init_model()
    with torch.no_grad():  # no weight is left at a value, such as 0 or 1, that could hide a mistake
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def our_network(name: str, case: Case) -> nn.Module:
    hyperparameters = Hyperparameters(
        learning_rate=1e-4,
        weight_decay=0.0,
        dropout=0.1,
        hidden_size=case.hidden_size,
        batch_size=BATCH,
    )
    return build_model(Architecture(model=name), case.shapes, hyperparameters)


@dataclass(frozen=True)
class Inputs:
    targets: Tensor
    past: Tensor | None
    history: Tensor | None
    future: Tensor | None
    static: Tensor | None
    answer: Tensor

    @classmethod
    def drawn(cls, shapes: ModelShapes, dtype: torch.dtype) -> Inputs:
        def draw(*size: int) -> Tensor | None:
            return torch.randn(size, dtype=torch.float64).to(dtype) if size[-1] else None

        targets = draw(BATCH, shapes.input_size, shapes.n_targets)
        answer = draw(BATCH, shapes.horizon, shapes.n_targets)
        assert targets is not None
        assert answer is not None
        return cls(
            targets=targets * 3 + 2,
            past=draw(BATCH, shapes.input_size, shapes.n_past),
            history=draw(BATCH, shapes.input_size, shapes.n_future),
            future=draw(BATCH, shapes.horizon, shapes.n_future),
            static=draw(BATCH, shapes.n_static),
            answer=answer,
        )

    def ours(self, model: nn.Module) -> Tensor:
        parts = [part for part in (self.targets, self.past, self.history) if part is not None]
        forecast: Tensor = model(torch.cat(parts, dim=-1), self.future, self.static)
        return forecast

    def theirs(self, model: nn.Module) -> Tensor:
        batch = PLModuleInput(
            past_target=self.targets,
            past_covariates=self.past,
            historic_future_covariates=self.history,
            future_covariates=self.future,
            static_covariates=None if self.static is None else self.static.unsqueeze(1),
        )
        forecast: Tensor = model(batch).prediction
        return forecast


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: present(parameter.grad) for name, parameter in model.named_parameters()}


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float, what: str) -> None:
    difference = ((ours - theirs).norm() / theirs.norm()).item()
    assert difference <= tolerance, f"{what}: relative difference {difference:.2e}"


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
def test_original_has_the_outputs_and_gradients_of_darts_network(
    case: Case, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(0)
    theirs, ours = darts_network(case), our_network("original", case)
    ours.load_state_dict(darts_to_original(theirs.state_dict()))
    theirs, ours = theirs.to(dtype).eval(), ours.to(dtype).eval()
    inputs = Inputs.drawn(case.shapes, dtype)

    their_output, our_output = inputs.theirs(theirs), inputs.ours(ours)
    levels = torch.tensor(QUANTILES, dtype=dtype)
    quantile_loss(their_output, inputs.answer, levels).backward()
    quantile_loss(our_output, inputs.answer, levels).backward()

    assert_close(our_output, their_output, tolerance, "output")
    their_gradients = darts_to_original(gradients_of(theirs))
    our_gradients = gradients_of(ours)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in our_gradients.items():
        assert_close(gradient, their_gradients[name], tolerance, name)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)], ids=["fp64", "fp32"]
)
def test_simple_has_the_outputs_and_gradients_of_original(
    case: Case, dtype: torch.dtype, tolerance: float
) -> None:
    torch.manual_seed(1)
    original, simple = our_network("original", case), our_network("simple", case)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    simple.load_state_dict(original_to_simple(original.state_dict()))
    original, simple = original.to(dtype).eval(), simple.to(dtype).eval()
    inputs = Inputs.drawn(case.shapes, dtype)

    outputs = inputs.ours(original), inputs.ours(simple)
    for output in outputs:
        quantile_loss(output, inputs.answer, torch.tensor(QUANTILES, dtype=dtype)).backward()

    assert_close(outputs[1], outputs[0], tolerance, "output")
    expected = original_to_simple(gradients_of(original))
    for name, gradient in gradients_of(simple).items():
        assert_close(gradient, expected[name], tolerance, name)


def test_original_has_116173_parameters_at_the_protocols_settings() -> None:
    assert (
        sum(p.numel() for p in our_network("original", CASES["the protocol"]).parameters())
        == 116_173
    )


def test_the_training_loss_is_the_one_darts_computes() -> None:
    torch.manual_seed(2)
    prediction = torch.randn(BATCH, 24, 7, 17, dtype=torch.float64)
    target = torch.randn(BATCH, 24, 7, dtype=torch.float64)
    theirs = QuantileRegression(QUANTILES).compute_loss(prediction, target, sample_weight=None)
    ours = quantile_loss(prediction, target, torch.tensor(QUANTILES, dtype=torch.float64))
    # darts keeps its levels in single precision.
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=0)
