"""The cheap masks of a CPU: their rate, their independence, and that dropout is all they do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tuner.models.dropout import add_dropout, draw_mask, dropout, relu_dropout

MANY = 1 << 20
RATES = [0.01, 0.1, 0.3, 0.5, 0.9]

Dropout = Callable[..., Tensor]


def dropped(p: float, n: int = MANY) -> Tensor:
    """(n,), 1 where an element was dropped."""
    return (dropout(torch.ones(n), p, training=True) == 0).double()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)


@pytest.mark.parametrize("p", RATES)
def test_the_rate_is_the_one_asked_for(p: float) -> None:
    mask = draw_mask(torch.ones(1), p)
    assert 1 - 1 / mask.scale == pytest.approx(p, abs=2**-17 + 1e-12)
    five_sigma = 5 * math.sqrt(p * (1 - p) / MANY)
    assert dropped(p).mean().item() == pytest.approx(1 - 1 / mask.scale, abs=five_sigma)


@pytest.mark.parametrize("p", RATES)
def test_every_quarter_of_a_random_word_has_the_same_rate(p: float) -> None:
    five_sigma = 5 * math.sqrt(p * (1 - p) / (MANY / 4))
    for rate in dropped(p).view(-1, 4).mean(dim=0).tolist():
        assert rate == pytest.approx(p, abs=five_sigma + 2**-17)


@pytest.mark.parametrize("p", [0.0, 1e-9, 1 - 1e-9])
def test_extreme_rates_give_numbers(p: float) -> None:
    result = relu_dropout(torch.ones(1000), p, training=True)
    assert torch.isfinite(result).all()
    if p < 0.5:
        assert torch.equal(result, torch.ones(1000))


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 5, 8, 64, 24 * 64, 1 << 16])
def test_elements_are_independent_of_those_at_a_distance(lag: int) -> None:
    p = 0.3
    zeros = dropped(p) - p
    correlation = (zeros[lag:] * zeros[:-lag]).mean().item() / (p * (1 - p))
    assert abs(correlation) < 5 / math.sqrt(MANY - lag)


def test_all_patterns_of_eight_neighbours_occur_as_often_as_independence_says() -> None:
    p = 0.4
    bits = dropped(p).long().view(-1, 8)
    patterns = (bits << torch.arange(8)).sum(dim=1)
    counts = torch.bincount(patterns, minlength=256).double()
    ones = torch.tensor([pattern.bit_count() for pattern in range(256)])
    expected = len(bits) * p**ones * (1 - p) ** (8 - ones)
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 255 + 5 * math.sqrt(2 * 255)


def test_consecutive_masks_are_independent() -> None:
    p = 0.3
    first, second = dropped(p) - p, dropped(p) - p
    assert abs((first * second).mean().item() / (p * (1 - p))) < 5 / math.sqrt(MANY)


def test_the_same_seed_gives_the_same_mask_and_the_next_draw_another() -> None:
    x = torch.randn(33, 7, 5)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(20)
    torch.randn(33, 7, 5)
    again = dropout(x, 0.5, training=True)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(5, 7), (3, 1, 2), (1,), (0, 4)])
def test_what_is_kept_is_scaled_and_what_is_dropped_is_zero(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64) + 5
    result = dropout(x, 0.25, training=True)
    kept = result != 0
    torch.testing.assert_close(result[kept], x[kept] / 0.75)


def _plain(x: Tensor, p: float) -> Tensor:
    """x times the mask that the next dropout of such a tensor will use, which it leaves to it."""
    state = torch.get_rng_state()
    mask = draw_mask(x, p)
    torch.set_rng_state(state)
    return x * (mask.bits > mask.bound) * mask.scale


def test_the_fused_forms_are_relu_dropout_and_sum() -> None:
    x, residual = (
        torch.randn(4, 6, 5, dtype=torch.float64),
        torch.randn(4, 1, 5, dtype=torch.float64),
    )
    expected = _plain(torch.relu(x), 0.3)
    torch.testing.assert_close(relu_dropout(x, 0.3, training=True), expected, rtol=1e-14, atol=0)
    expected = residual + _plain(x, 0.3)
    torch.testing.assert_close(
        add_dropout(residual, x, 0.3, training=True), expected, rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("function", [dropout, relu_dropout])
def test_gradients_are_those_of_the_mask_that_was_drawn(function: Dropout) -> None:
    def repeated(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return function(x, 0.3, training=True)

    x = torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(repeated, (x,))
    assert torch.autograd.gradcheck(repeated, (x.transpose(0, 2),))
    assert torch.autograd.gradcheck(lambda y: repeated(y.expand(-1, 4, -1)), (x[:, :1],))


def test_gradients_of_the_sum_reach_a_broadcast_residual() -> None:
    def repeated(residual: Tensor, x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return add_dropout(residual, x, 0.3, training=True)

    x = torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True)
    residual = torch.randn(4, 1, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(repeated, (residual, x))


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.3, False)])
def test_nothing_is_drawn_or_changed_where_nothing_is_dropped(p: float, training: bool) -> None:
    x, residual = torch.randn(5, 3), torch.randn(5, 3)
    state = torch.get_rng_state()
    assert torch.equal(dropout(x, p, training=training), x)
    assert torch.equal(relu_dropout(x, p, training=training), torch.relu(x))
    assert torch.equal(add_dropout(residual, x, p, training=training), residual + x)
    assert torch.equal(torch.get_rng_state(), state)


def test_half_precision_uses_pytorchs_own_dropout() -> None:
    x = torch.randn(64, dtype=torch.bfloat16)
    torch.manual_seed(3)
    expected = functional.dropout(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.3, training=True), expected)
