"""The fused network beside the plain one in double precision: values, gradients, masks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import Tensor

from tuner.config import ModelShapes
from tuner.kernels import FusedTSMixer
from tuner.kernels.kernel_launch import COLUMN_SAMPLES, MOST_SPLITS
from tuner.kernels.launch_order import Drawing, Launching
from tuner.kernels.plan import layout_of, whole_of
from tuner.models import dropout
from tuner.models.tsmixer import DESIGNS, TSMixer

SHAPES = ModelShapes(
    input_size=20, horizon=6, n_targets=3, n_past=1, n_future=2, n_static=2, n_quantiles=5
)
BARE = replace(SHAPES, n_past=0, n_future=0, n_static=0)
ROUNDING = 2e-6
"""Of the norm: what float32 leaves after some thirty products and norms."""


class Inputs(NamedTuple):
    past: Tensor
    future: Tensor | None
    static: Tensor | None


def network(
    name: str = "original",
    shapes: ModelShapes = SHAPES,
    hidden: int = 16,
    p: float = 0.0,
    n_blocks: int = 2,
) -> TSMixer:
    """With every parameter off its initial value: a norm's 1 and 0 would hide mistakes."""
    torch.manual_seed(0)
    model = TSMixer(shapes, DESIGNS[name], hidden_size=hidden, dropout=p, n_blocks=n_blocks)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def inputs_of(shapes: ModelShapes, n: int, seed: int = 1) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    columns = shapes.n_targets + shapes.n_past + shapes.n_future
    past = 3 * torch.randn(n, shapes.input_size, columns, generator=generator) + 1
    future = (
        torch.randn(n, shapes.horizon, shapes.n_future, generator=generator)
        if shapes.n_future
        else None
    )
    static = torch.randn(n, shapes.n_static, generator=generator) if shapes.n_static else None
    return Inputs(past, future, static)


@contextlib.contextmanager
def masks_given(masks: list[Tensor], scale: float, *, transposed: bool) -> Iterator[None]:
    """In here the plain network drops out by these masks, (B, T, features), one after another."""
    left = iter(masks)

    def kept(x: Tensor) -> Tensor:
        mask = next(left).to(x.dtype) * scale
        return mask.transpose(1, 2) if transposed else mask

    with mock.patch.multiple(
        dropout,
        relu_dropout=lambda x, p, training: torch.relu(x) * kept(x),
        dropout=lambda x, p, training: x * kept(x),
        add_dropout=lambda residual, x, p, training: residual + x * kept(x),
    ):
        yield
    assert next(left, None) is None, "the plain network drew fewer masks"


def assert_agrees(fused: FusedTSMixer, inputs: Inputs) -> None:
    """Values and every gradient beside the plain network's, in float64, with the same masks."""
    model = fused.model
    forecast = fused(*inputs)
    slope = torch.randn(forecast.shape, generator=torch.Generator().manual_seed(2))
    forecast.backward(slope)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    masked: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if fused.last_masks is not None:
        transposed = model.layout.feature_axis == 1
        masked = masks_given(fused.masks_by_use(), float(fused.scale), transposed=transposed)
    model.double()
    with masked:
        expected = model(*(None if tensor is None else tensor.double() for tensor in inputs))
    expected.backward(slope.double())
    assert distance(forecast, expected) < ROUNDING
    for name, parameter in model.named_parameters():
        assert distance(gradients[name], parameter.grad) < ROUNDING, name
    model.float()


def distance(found: Tensor | None, expected: Tensor | None) -> float:
    assert found is not None
    assert expected is not None
    return float(((found - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize(
    ("name", "shapes", "hidden", "n_blocks"),
    [
        ("simple", replace(SHAPES, n_future=0), 16, 2),
        ("rmsnorm", replace(SHAPES, n_static=0), 48, 1),
        ("original", replace(BARE, input_size=70, horizon=33), 80, 1),
        ("layernorm", replace(SHAPES, horizon=64), 32, 1),
    ],
)
def test_a_variant_of_any_size_agrees_with_the_plain_network(
    name: str, shapes: ModelShapes, hidden: int, n_blocks: int
) -> None:
    assert_agrees(FusedTSMixer(network(name, shapes, hidden, 0.2, n_blocks)), inputs_of(shapes, 2))


def test_the_reference_job_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the splits of a batch that a GPU is given."""
    monkeypatch.setattr("tuner.kernels.kernel_launch.MOST_SPLITS", MOST_SPLITS)
    monkeypatch.setattr("tuner.kernels.kernel_launch.COLUMN_SAMPLES", COLUMN_SAMPLES)
    shapes = ModelShapes(
        input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
    )
    assert_agrees(FusedTSMixer(network("original", shapes, 64, 0.1, 1)), inputs_of(shapes, 1))


def test_sums_over_a_batch_agree_where_it_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five samples in splits of two."""
    monkeypatch.setattr("tuner.kernels.kernel_launch.MOST_SPLITS", 4)
    assert_agrees(FusedTSMixer(network(shapes=BARE, n_blocks=1)), inputs_of(BARE, 5))


def test_padding_is_in_no_result_and_the_gaps_of_the_gradient_hold_zeros() -> None:
    """Rows of planes are padded, and products read the padding."""
    model, inputs = network(shapes=SHAPES, hidden=48, n_blocks=1), inputs_of(SHAPES, 1)
    fused = FusedTSMixer(model)
    assert_agrees(fused, inputs)
    parameters = list(model.parameters())
    layout = layout_of(parameters)
    whole = whole_of(gradients_of(fused, inputs), layout)
    assert whole is not None, "the optimiser takes it as it is"
    for view in layout.views(whole, parameters):
        view.zero_()
    assert not whole.any()


def test_the_same_seed_gives_the_same_bits_and_the_next_step_other_masks() -> None:
    model, inputs = network(shapes=BARE, p=0.5, n_blocks=1), inputs_of(BARE, 1)
    fused = FusedTSMixer(model)
    before = fused.random_state.clone()
    first = gradients_of(fused, inputs)
    second = gradients_of(fused, inputs)
    fused.random_state.copy_(before)
    again = gradients_of(fused, inputs)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def gradients_of(fused: FusedTSMixer, inputs: Inputs) -> list[Tensor]:
    forecast = fused(*inputs)
    return list(torch.autograd.grad(forecast.square().mean(), list(fused.model.parameters())))


def test_masks_have_the_rate_and_know_nothing_of_each_other() -> None:
    p = 0.3
    fused = FusedTSMixer(network(p=p))
    from tuner.kernels import kernel_launch as launch

    plan, drawn = fused.plan, []
    for number in range(2):
        masks = torch.empty(40, plan.sizes.mask_record, dtype=torch.uint8)
        state = torch.tensor([fused.random_state[0].item(), number])
        launch.draw_masks(Drawing(masks, state, fused.n_dropped), Launching())
        drawn.append(masks.float())
    n = drawn[0].numel()
    for mask in drawn:
        assert set(mask.unique().tolist()) == {0.0, 1.0}
        assert abs(float(mask.mean()) - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
    flat = [(mask.flatten() - (1 - p)) / (p * (1 - p)) ** 0.5 for mask in drawn]
    bound = 5 / n**0.5
    assert abs(float((flat[0] * flat[1]).mean())) < bound, "two draws"
    for lag in (1, 2, 8, 16, 512, 1024, plan.sizes.mask_record):
        assert abs(float((flat[0][lag:] * flat[0][:-lag]).sum()) / n) < bound, lag


def test_evaluation_drops_nothing_and_takes_a_batch_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tuner.kernels.network.WITHOUT_GRADIENT", 2)
    model, inputs = network(p=0.5, n_blocks=1).eval(), inputs_of(SHAPES, 3)
    fused = FusedTSMixer(model)
    before = fused.random_state.clone()
    with torch.no_grad():
        forecast = fused(*inputs)
        assert distance(forecast, model(*inputs)) < ROUNDING
    assert torch.equal(fused.random_state, before)


def test_injected_masks_are_used() -> None:
    fused = FusedTSMixer(network(p=0.5, n_blocks=1))
    inputs = inputs_of(SHAPES, 1)
    fused.masks = torch.ones(1, fused.plan.sizes.mask_record, dtype=torch.uint8)
    kept = fused(*inputs)
    fused.masks = torch.zeros_like(fused.masks)
    assert distance(fused(*inputs), kept) > 0.01
    assert fused.random_state[1] == 0


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"future": None}, "future must be"), ({"past": torch.zeros(2, 20, 5)}, "past must be")],
)
def test_inputs_that_do_not_fit_are_refused(changed: dict[str, Any], says: str) -> None:
    inputs = inputs_of(SHAPES, 2)._replace(**changed)
    with pytest.raises(ValueError, match=says):
        FusedTSMixer(network())(*inputs)
