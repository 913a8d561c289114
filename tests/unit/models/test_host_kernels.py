"""The CPU's own kernels against PyTorch's operations, and what their masks are worth."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tuner.kernels.host_kernels import HostKernels, library, why_not_built
from tuner.models.dropout import Elementwise

pytestmark = pytest.mark.skipif(why_not_built() is not None, reason="needs g++")

MANY = (128, 64, 128)
P = 0.3


@pytest.fixture(scope="module")
def kernels() -> HostKernels:
    return HostKernels(library())


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)


def dropped(kernels: Elementwise, p: float = P) -> Tensor:
    """1 where an element was dropped."""
    return (kernels.relu_dropout(torch.ones(MANY), p, training=True) == 0).double().flatten()


def joined(elementwise: Elementwise, norm: nn.Module, *, relu: bool) -> list[Tensor]:
    """The result and all gradients, for a residual that is part of a wider plane."""
    torch.manual_seed(3)
    wide, x = torch.randn(9, 4, 21, requires_grad=True), torch.randn(9, 4, 10, requires_grad=True)
    result = elementwise.join(wide[..., 11:], x * 1, 0.0, norm, relu=relu, training=True)
    leaves = [wide, x, *norm.parameters()]
    return [result, *torch.autograd.grad(result.square().sum() / 100, leaves)]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    "norm",
    [lambda: nn.LayerNorm((4, 10)), lambda: nn.LayerNorm(10), lambda: nn.BatchNorm1d(4)],
    ids=["plane", "features", "batch"],
)
def test_a_join_without_dropout_is_pytorchs(
    kernels: HostKernels, norm: Callable[[], nn.Module], relu: bool
) -> None:
    layer = norm()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    for ours, theirs in zip(
        joined(kernels, layer, relu=relu),
        joined(Elementwise(), layer, relu=relu),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_dropped_element_adds_nothing_and_a_kept_one_its_gradient(kernels: HostKernels) -> None:
    x = torch.ones(64, 8, 16, requires_grad=True)
    residual = torch.full((64, 1, 16), 5.0)
    added = kernels.join(residual, x * 1, P, nn.Identity(), relu=False, training=True)
    (gradient,) = torch.autograd.grad(added.sum(), x)
    kept = added != 5
    torch.testing.assert_close(added[kept], torch.full_like(added[kept], 5 + 1 / (1 - P)))
    torch.testing.assert_close(gradient, kept * (1 / (1 - P)))
    assert 0.6 < kept.double().mean().item() < 0.8


def test_an_hour_that_stands_for_all_is_dropped_at_each(kernels: HostKernels) -> None:
    x = torch.randn(32, 1, 64, requires_grad=True)
    result = kernels.relu_dropout(x, P, training=True, stretch=lambda hour: hour.expand(-1, 8, -1))
    (gradient,) = torch.autograd.grad(result.sum(), x)
    kept = (result > 0).sum(dim=1, keepdim=True)
    torch.testing.assert_close(gradient, kept / (1 - P) * (x > 0))
    assert 0 < kept[x > 0].min().item() < kept.max().item() == 8


def test_what_is_no_number_stays_so(kernels: HostKernels) -> None:
    x = torch.full((2, 3, 4), math.nan)
    assert kernels.relu_dropout(x, 0.0, training=True).isnan().all()
    assert kernels.join(x, x * 1, 0.0, nn.Identity(), relu=True, training=True).isnan().all()


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_rate_is_the_one_asked_for(kernels: HostKernels, p: float) -> None:
    five_sigma = 5 * math.sqrt(p * (1 - p) / math.prod(MANY))
    assert dropped(kernels, p).mean().item() == pytest.approx(p, abs=five_sigma)


@pytest.mark.parametrize("lag", [1, 2, 3, 8, 64, 24 * 64, 1 << 16])
def test_elements_are_independent_of_those_at_a_distance(kernels: HostKernels, lag: int) -> None:
    zeros = dropped(kernels) - P
    correlation = (zeros[lag:] * zeros[:-lag]).mean().item() / (P * (1 - P))
    assert abs(correlation) < 5 / math.sqrt(len(zeros) - lag)


def test_masks_are_independent_of_each_other(kernels: HostKernels) -> None:
    first, second = dropped(kernels) - P, dropped(kernels) - P
    correlation = (first * second).mean().item() / (P * (1 - P))
    assert abs(correlation) < 5 / math.sqrt(len(first))


def test_a_seed_gives_its_masks_again(kernels: HostKernels) -> None:
    first = dropped(kernels)
    assert not torch.equal(dropped(kernels), first)
    torch.manual_seed(20)
    assert torch.equal(dropped(kernels), first)
