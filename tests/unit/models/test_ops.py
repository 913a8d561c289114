"""The faster forms against the plain ones, values and gradients, in float64, on any device."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.support.present import present
from tuner.models.ops import (
    NARROW,
    _MiddleLinear,
    middle_linear,
    middle_rms_norm,
    restore_level,
    rows_linear,
)
from tuner.training.quantile_loss import pinball, quantile_loss


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_the_batched_middle_linear_has_the_plain_ones_value_and_gradients() -> None:
    x, weight, bias = random(5, 7, 3), random(4, 7), random(4)
    assert torch.autograd.gradcheck(_MiddleLinear.apply, (x, weight, bias))
    plain = functional.linear(x.transpose(1, 2), weight, bias).transpose(1, 2)
    torch.testing.assert_close(_MiddleLinear.apply(x, weight, bias), plain)
    torch.testing.assert_close(middle_linear(x, weight, bias), plain)


def test_the_batched_middle_linear_skips_the_gradient_of_data() -> None:
    x, weight, bias = random(5, 7, 3).detach(), random(4, 7), random(4)
    _MiddleLinear.apply(x, weight, bias).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(dim=(0, 2)).expand(4, 7))


def test_restoring_the_level_has_the_formulas_value_and_gradients() -> None:
    forecast, weight, bias = random(3, 4, 2, 5), random(2), random(2)
    mean, deviation = random(3, 1, 2).detach(), random(3, 1, 2).detach().abs() + 0.1
    assert torch.autograd.gradcheck(restore_level, (forecast, weight, bias, mean, deviation))
    expected = (forecast - bias.unsqueeze(-1)) / weight.unsqueeze(-1) * deviation.unsqueeze(
        -1
    ) + mean.unsqueeze(-1)
    torch.testing.assert_close(restore_level(forecast, weight, bias, mean, deviation), expected)


def test_the_quantile_loss_has_the_pinballs_value_and_gradient() -> None:
    prediction, target = random(6, 4, 2, 3), random(6, 4, 2).detach()
    quantiles = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    plain = pinball(prediction, target, quantiles).sum(dim=-1).mean()
    (expected,) = torch.autograd.grad(plain, prediction)
    loss = quantile_loss(prediction, target, quantiles)
    (gradient,) = torch.autograd.grad(loss, prediction)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(gradient, expected)


def test_the_quantile_loss_of_a_forecast_that_is_no_number_is_none() -> None:
    prediction = torch.full((1, 1, 1, 1), float("nan"), requires_grad=True)
    assert torch.isnan(quantile_loss(prediction, torch.zeros(1, 1, 1), torch.tensor([0.5])))


def test_the_middle_rms_norm_has_the_formulas_value_and_gradients() -> None:
    plane, weight = random(3, 5, 4), random(5)
    assert torch.autograd.gradcheck(lambda p, w: middle_rms_norm(p, w, 1e-5), (plane, weight))
    expected = (
        plane / torch.sqrt(plane.square().mean(dim=1, keepdim=True) + 1e-5) * weight.unsqueeze(-1)
    )
    torch.testing.assert_close(middle_rms_norm(plane, weight, 1e-5), expected)


@pytest.mark.parametrize(("n_in", "n_out"), [(6, 32), (13, 32), (32, 16), (16, 7), (5, 3), (1, 16)])
def test_the_hosts_linear_has_the_plain_ones_value_and_gradients(n_in: int, n_out: int) -> None:
    x, weight, bias = random(3, 4, n_in), random(n_out, n_in), random(n_out)
    torch.testing.assert_close(rows_linear(x, weight, bias), functional.linear(x, weight, bias))
    assert torch.autograd.gradcheck(rows_linear, (x, weight, bias))
    assert torch.autograd.gradcheck(rows_linear, (x[:, ::2], weight, bias))


def test_the_hosts_linear_skips_the_gradient_of_data() -> None:
    x, weight, bias = random(5, 6).detach(), random(16, 6), random(16)
    rows_linear(x, weight, bias).sum().backward()
    assert x.grad is None
    torch.testing.assert_close(weight.grad, x.sum(dim=0).expand(16, 6))


@pytest.mark.parametrize("width", [NARROW - 1, NARROW])
def test_the_middle_linear_is_one_function_on_both_sides_of_its_limit(width: int) -> None:
    x, weight, bias = random(2, 5, width), random(4, 5), random(4)
    expected = torch.einsum("oi,bim->bom", weight, x) + bias.unsqueeze(-1)
    ours = torch.autograd.grad(middle_linear(x, weight, bias).square().sum(), (x, weight, bias))
    theirs = torch.autograd.grad(expected.square().sum(), (x, weight, bias))
    torch.testing.assert_close(middle_linear(x, weight, bias), expected)
    for gradient, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, other)


def test_a_forecast_that_meets_the_target_gets_the_gradient_from_below() -> None:
    prediction = torch.zeros(1, 1, 1, 2, dtype=torch.float64, requires_grad=True)
    quantiles = torch.tensor([0.2, 0.9], dtype=torch.float64)
    quantile_loss(prediction, torch.zeros(1, 1, 1, dtype=torch.float64), quantiles).backward()
    torch.testing.assert_close(present(prediction.grad).flatten(), -quantiles)
