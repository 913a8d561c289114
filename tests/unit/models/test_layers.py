"""Each norm against its formula in float64, and what the layouts do."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tuner.models.layers import (
    EPS,
    ChannelFirst,
    MiddleLinear,
    ReversibleInstanceNorm,
    TimeFirst,
    channel_first_plane_norm,
    feature_batch_norm,
    feature_layer_norm,
    feature_rms_norm,
    time_first_plane_norm,
)

B, H, T = 6, 5, 4
Array = NDArray[np.float64]
M = TypeVar("M", bound=nn.Module)


@pytest.fixture
def plane() -> Tensor:
    """(B, H, T), far from zero mean and unit spread."""
    return (
        torch.randn(B, H, T, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 3
        + 1
    )


def _with_random_affine(norm: M) -> M:
    generator = torch.Generator().manual_seed(4)
    norm = norm.double()
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return norm


def _normalised(x: Array, axes: tuple[int, ...]) -> Array:
    away = x - x.mean(axis=axes, keepdims=True)
    normalised: Array = away / np.sqrt((away**2).mean(axis=axes, keepdims=True) + EPS)
    return normalised


def _affine(norm: nn.Module) -> tuple[Array, Array]:
    """Its weight and its bias."""
    weight, bias = norm.get_parameter("weight"), norm.get_parameter("bias")
    return weight.detach().numpy(), bias.detach().numpy()


def test_rms_norm_divides_by_the_root_mean_square_over_features(plane: Tensor) -> None:
    norm = _with_random_affine(feature_rms_norm(H, T))
    x, weight = plane.numpy(), norm.get_parameter("weight").detach().numpy()
    expected = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + EPS) * weight[:, None]
    np.testing.assert_allclose(norm(plane).detach().numpy(), expected, rtol=1e-12)
    assert [tuple(p.shape) for p in norm.parameters()] == [(H,)]


def test_rms_norm_in_fp32_is_close_to_the_formula(plane: Tensor) -> None:
    norm = _with_random_affine(feature_rms_norm(H, T))
    expected = norm(plane)
    torch.testing.assert_close(norm.float()(plane.float()).double(), expected, rtol=1e-5, atol=1e-6)


def test_feature_layer_norm_normalises_every_hour_over_its_features(plane: Tensor) -> None:
    norm = _with_random_affine(feature_layer_norm(H, T))
    weight, bias = _affine(norm)
    expected = _normalised(plane.numpy(), (1,)) * weight[:, None] + bias[:, None]
    np.testing.assert_allclose(norm(plane).detach().numpy(), expected, rtol=1e-10)


def test_plane_norms_normalise_features_and_time_together_with_an_affine_for_each(
    plane: Tensor,
) -> None:
    norm = _with_random_affine(channel_first_plane_norm(H, T))
    weight, bias = _affine(norm)
    expected = _normalised(plane.numpy(), (1, 2)) * weight + bias
    np.testing.assert_allclose(norm(plane).detach().numpy(), expected, rtol=1e-10)
    assert norm.weight.shape == (H, T)

    time_first = time_first_plane_norm(H, T).double()
    assert time_first.get_parameter("weight").shape == (T, H)
    with torch.no_grad():
        for name in ("weight", "bias"):
            time_first.get_parameter(name).copy_(norm.get_parameter(name).T)
    np.testing.assert_allclose(
        time_first(plane.transpose(1, 2)).transpose(1, 2).detach().numpy(), expected, rtol=1e-10
    )


def test_batch_norm_uses_the_batch_in_training_and_its_running_statistics_in_evaluation(
    plane: Tensor,
) -> None:
    norm = _with_random_affine(feature_batch_norm(H, T))
    weight, bias = (each[:, None] for each in _affine(norm))
    x = plane.numpy()
    np.testing.assert_allclose(
        norm(plane).detach().numpy(), _normalised(x, (0, 2)) * weight + bias, rtol=1e-10
    )

    mean, unbiased = x.mean(axis=(0, 2)), x.var(axis=(0, 2), ddof=1)
    running_mean, running_variance = 0.1 * mean, 0.9 + 0.1 * unbiased
    np.testing.assert_allclose(norm.get_buffer("running_mean").numpy(), running_mean, rtol=1e-12)
    np.testing.assert_allclose(norm.get_buffer("running_var").numpy(), running_variance, rtol=1e-12)
    norm.eval()
    one = plane[:1]
    scaled = (one.numpy() - running_mean[:, None]) / np.sqrt(running_variance[:, None] + EPS)
    np.testing.assert_allclose(norm(one).detach().numpy(), scaled * weight + bias, rtol=1e-10)
    np.testing.assert_allclose(norm.get_buffer("running_mean").numpy(), running_mean, rtol=1e-12)


def test_reversible_norm_follows_its_formula_there_and_back() -> None:
    norm = _with_random_affine(ReversibleInstanceNorm(3))
    targets = torch.randn(B, 20, 3, dtype=torch.float64) * 4 + 7
    x = targets.numpy()
    weight, bias = _affine(norm)
    mean, deviation = (
        x.mean(axis=1, keepdims=True),
        np.sqrt(x.var(axis=1, ddof=0, keepdims=True) + 1e-5),
    )

    normalised, statistics = norm(targets)
    np.testing.assert_allclose(normalised.detach().numpy(), (x - mean) / deviation, rtol=1e-10)

    # The affine step, taken after a projection over time, equals the step and then the projection.
    projection = MiddleLinear(20, 6).double()
    other = torch.randn(B, 20, 2, dtype=torch.float64)
    affine = torch.from_numpy((x - mean) / deviation * weight + bias)
    plain = torch.cat([normalised, other], dim=-1)
    torch.testing.assert_close(
        norm.after_projection(projection(plain), projection),
        projection(torch.cat([affine, other], dim=-1)),
    )

    forecast = torch.randn(B, 6, 3, 2, dtype=torch.float64)
    y = (forecast.numpy() - bias[:, None]) / (weight[:, None] + 1e-10)
    expected = y * deviation[..., None] + mean[..., None]
    np.testing.assert_allclose(
        norm.inverse(forecast, statistics).detach().numpy(), expected, rtol=1e-10
    )


def test_a_constant_window_passes_the_reversible_norm_without_a_division_by_zero() -> None:
    norm = ReversibleInstanceNorm(2)
    normalised, statistics = norm(torch.full((1, 8, 2), 5.0))
    assert torch.equal(normalised, torch.zeros(1, 8, 2))
    assert torch.equal(
        norm.inverse(torch.zeros(1, 3, 2, 1), statistics), torch.full((1, 3, 2, 1), 5.0)
    )


def test_both_layouts_mix_the_same_axes_with_the_same_weights() -> None:
    torch.manual_seed(5)
    series, static = torch.randn(B, T, H), torch.randn(B, 2)
    first, channel = TimeFirst(), ChannelFirst()
    for kind, n_in, n_out in (("feature_linear", H, 3), ("time_linear", T, 7)):
        torch.manual_seed(6)
        time_first_layer = getattr(first, kind)(n_in, n_out)
        torch.manual_seed(6)
        channel_first_layer = getattr(channel, kind)(n_in, n_out)
        torch.testing.assert_close(
            channel.leave(channel_first_layer(channel.enter(series))),
            first.leave(time_first_layer(first.enter(series))),
        )
    repeated = static.unsqueeze(1).expand(B, T, 2)
    assert torch.equal(first.leave(first.stretch(first.one_hour(static), T)), repeated)
    assert torch.equal(channel.leave(channel.stretch(channel.one_hour(static), T)), repeated)
