"""The kernels beside the network, compiled: their rounding, and what they make of NaN."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData
from tuner.training.quantile_loss import quantile_loss

pytest.importorskip("triton", reason="Triton is not installed")

from tuner.kernels.step_kernels import FlatAdamW, FlatParameters, LossSum, gather, score

SHAPES = ((7,), (24, 24), (192, 128), (64, 13, 1), (1,))


@pytest.mark.parametrize("size", [1, 250, 256])
def test_a_gathered_batch_is_that_of_the_split(cuda_data: DeviceData, size: int) -> None:
    for split in (cuda_data.train, cuda_data.val):
        order = torch.randperm(len(split), device="cuda")
        done = torch.tensor(len(split) - size, device="cuda")
        batch, expected = gather(split, order, done, size), split.gather(order[-size:])
        for field in dataclasses.fields(expected):
            made, right = getattr(batch, field.name), getattr(expected, field.name)
            if right is None:  # what these data do not have
                assert made is None, field.name
            else:
                assert torch.equal(made, right), field.name


@pytest.mark.parametrize("n_windows", [1, 256, 8192])
def test_loss_and_slope_are_those_of_the_metric(n_windows: int) -> None:
    generator = torch.Generator(device="cuda").manual_seed(n_windows)
    prediction = torch.randn(
        n_windows, 24, 7, 17, device="cuda", generator=generator, requires_grad=True
    )
    target = torch.randn(n_windows, 24, 7, device="cuda", generator=generator)
    quantiles = torch.linspace(0.01, 0.99, 17, device="cuda")
    loss = quantile_loss(prediction, target, quantiles)
    loss.backward()
    slope = torch.full_like(prediction.detach(), torch.nan)
    losses = LossSum(prediction.device, prediction.numel())
    score(prediction.detach(), target, quantiles, losses, slope=slope)
    assert prediction.grad is not None
    torch.testing.assert_close(slope, prediction.grad, rtol=1e-6, atol=0.0)
    assert losses.parts.sum().item() / (24 * 7) == pytest.approx(loss.item() * n_windows, rel=1e-5)
    assert losses.done.item() == n_windows


def drawn(scale: float, seed: int) -> list[Tensor]:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randn(shape, device="cuda", generator=generator) * scale for shape in SHAPES]


def by_torch(weight_decay: float, limit: float, dtype: torch.dtype) -> list[Tensor]:
    parameters = [nn.Parameter(value.to(dtype)) for value in drawn(1.0, 0)]
    adamw = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=weight_decay, fused=True)
    for seed in range(1, 101):
        for parameter, gradient in zip(
            parameters, drawn(0.003 * (0.1 + seed % 3), seed), strict=True
        ):
            parameter.grad = gradient.to(dtype)
        nn.utils.clip_grad_norm_(parameters, limit)
        adamw.step()
    return [parameter.detach() for parameter in parameters]


def by_kernel(weight_decay: float, limit: float) -> list[Tensor]:
    parameters = [nn.Parameter(value) for value in drawn(1.0, 0)]
    rate = torch.tensor(1e-2, device="cuda")
    adamw = FlatAdamW(FlatParameters(parameters), rate, weight_decay=weight_decay, limit=limit)
    for seed in range(1, 101):
        adamw.take(drawn(0.003 * (0.1 + seed % 3), seed))
        adamw.step()
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("limit", [0.3, 1e9])
def test_many_steps_of_adamw_are_as_near_to_float64_as_torchs_own(
    weight_decay: float, limit: float
) -> None:
    truth = by_torch(weight_decay, limit, torch.float64)
    errors = [
        max(
            float((value.double() - exact).abs().max())
            for value, exact in zip(values, truth, strict=True)
        )
        for values in (by_kernel(weight_decay, limit), by_torch(weight_decay, limit, torch.float32))
    ]
    print(
        f"decay {weight_decay}, limit {limit}: largest error {errors[0]:.1e}, "
        f"torch's own {errors[1]:.1e}"
    )
    assert errors[0] <= 2 * errors[1] + 1e-7
    again = by_kernel(weight_decay, limit)
    assert all(
        torch.equal(a, b) for a, b in zip(by_kernel(weight_decay, limit), again, strict=True)
    )


def test_a_gradient_that_is_no_number_spoils_every_weight_as_torchs_clipping_does() -> None:
    parameters = [
        nn.Parameter(torch.ones(3, device="cuda")),
        nn.Parameter(torch.ones(2, 2, device="cuda")),
    ]
    adamw = FlatAdamW(
        FlatParameters(parameters), torch.tensor(1e-2, device="cuda"), weight_decay=0.0, limit=1.0
    )
    adamw.take(
        [torch.tensor([1.0, torch.nan, 1.0], device="cuda"), torch.ones(2, 2, device="cuda")]
    )
    adamw.step()
    assert all(torch.isnan(parameter).all() for parameter in parameters)
