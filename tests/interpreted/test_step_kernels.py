"""Gather, loss and optimiser as kernels, against what PyTorch computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData
from tuner.kernels.plan import layout_of, whole_of
from tuner.kernels.step_kernels import BLOCK, FlatAdamW, FlatParameters, LossSum, gather, score
from tuner.training.quantile_loss import quantile_loss

CPU = torch.device("cpu")


@pytest.mark.parametrize(("given", "done", "size"), [("data", 0, 8), ("bare_data", 16, 6)])
def test_a_gathered_batch_is_that_of_the_split(
    request: pytest.FixtureRequest, given: str, done: int, size: int
) -> None:
    data: DeviceData = request.getfixturevalue(given)
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(1))
    batch = gather(data.train, order, torch.tensor(done), size)
    expected = data.train.gather(order[done : done + size])
    for field in dataclasses.fields(expected):
        one, other = getattr(batch, field.name), getattr(expected, field.name)
        assert (one is None) == (other is None), field.name
        assert one is None or torch.equal(one, other), field.name


def forecasts(n_windows: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n_windows)
    prediction = torch.randn(n_windows, 6, 3, 17, generator=generator)
    target = torch.randn(n_windows, 6, 3, generator=generator)
    prediction[0, 0, 0] = target[0, 0, 0]  # where both agree the slope has a convention
    return prediction.requires_grad_(), target, torch.linspace(0.01, 0.99, 17)


@pytest.mark.parametrize("n_windows", [1, 5])
def test_loss_and_slope_are_those_of_the_metric(n_windows: int) -> None:
    prediction, target, quantiles = forecasts(n_windows)
    loss = quantile_loss(prediction, target, quantiles)
    loss.backward()
    slope = torch.full_like(prediction.detach(), torch.nan)
    losses = LossSum(CPU, prediction.numel())
    score(prediction.detach(), target, quantiles, losses, slope=slope)
    assert prediction.grad is not None
    assert torch.equal(slope, prediction.grad)
    assert float(losses.parts.sum()) / (6 * 3) == pytest.approx(loss.item() * n_windows, rel=1e-6)
    assert int(losses.done) == n_windows


def test_a_tally_adds_up_batches_of_any_size_and_starts_again() -> None:
    losses = LossSum(CPU, 5 * 6 * 3 * 17)
    expected = 0.0
    for n_windows in (5, 5, 2):
        prediction, target, quantiles = forecasts(n_windows)
        assert prediction.numel() > BLOCK or n_windows == 2
        expected += quantile_loss(prediction, target, quantiles).item() * n_windows
        score(prediction.detach(), target, quantiles, losses)
    assert float(losses.parts.sum()) / (6 * 3) == pytest.approx(expected, rel=1e-6)
    assert int(losses.done) == 12
    losses.reset()
    assert (int(losses.done), float(losses.parts.sum())) == (0, 0.0)


def test_a_forecast_that_is_no_number_makes_a_loss_that_is_none() -> None:
    prediction, target, quantiles = forecasts(2)
    broken = prediction.detach().clone()
    broken[1, 2, 0, 3] = torch.nan
    losses = LossSum(CPU, broken.numel())
    score(broken, target, quantiles, losses)
    assert torch.isnan(losses.parts.sum())


SHAPES = ((7,), (24, 24), (64, 13), (3,), (1,))
STEPS = 6


def drawn() -> tuple[list[Tensor], list[list[Tensor]]]:
    """Parameters and their gradients in each step, some with a norm far above 1, some below."""
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(shape, generator=generator) for shape in SHAPES]
    gradients = [
        [torch.randn(shape, generator=generator) * 0.03 * (0.1 + step % 3) for shape in SHAPES]
        for step in range(STEPS)
    ]
    return values, gradients


def by_torch(weight_decay: float, limit: float, dtype: torch.dtype) -> list[Tensor]:
    values, gradients = drawn()
    parameters = [nn.Parameter(value.to(dtype)) for value in values]
    adamw = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=weight_decay, fused=True)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.to(dtype)
        nn.utils.clip_grad_norm_(parameters, limit)
        adamw.step()
    return [parameter.detach() for parameter in parameters]


def by_kernel(weight_decay: float, limit: float) -> list[Tensor]:
    values, gradients = drawn()
    parameters = [nn.Parameter(value) for value in values]
    adamw = FlatAdamW(
        FlatParameters(parameters), torch.tensor(1e-2), weight_decay=weight_decay, limit=limit
    )
    for step in gradients:
        adamw.take(step)
        adamw.step()
    return [parameter.detach() for parameter in parameters]


def distance(these: Sequence[Tensor], those: Sequence[Tensor]) -> float:
    squares = [((a.double() - b.double()) ** 2).sum() for a, b in zip(these, those, strict=True)]
    return float(torch.stack(squares).sum().sqrt())


@pytest.mark.parametrize(("weight_decay", "limit"), [(0.1, 1.0), (0.0, 1e9)])
def test_many_steps_of_adamw_are_as_near_to_float64_as_torchs_own(
    weight_decay: float, limit: float
) -> None:
    truth = by_torch(weight_decay, limit, torch.float64)
    ours, theirs = by_kernel(weight_decay, limit), by_torch(weight_decay, limit, torch.float32)
    assert distance(ours, truth) <= 2 * distance(theirs, truth)
    # Roundings of weights of about 1, and a few more in each step that is added
    assert (
        max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
        < 2 * STEPS * 2**-23
    )
    assert (
        distance(truth, by_torch(weight_decay, 1.0 if limit > 1 else 1e9, torch.float64)) > 1e-3
    ), "clipping matters"


def test_the_first_steps_are_exact_to_the_last_digits() -> None:
    """From weights of 0, where nothing hides what the moments' corrections lack in precision."""
    parameters, doubles = (
        [nn.Parameter(torch.zeros(5))],
        [nn.Parameter(torch.zeros(5, dtype=torch.float64))],
    )
    ours = FlatAdamW(FlatParameters(parameters), torch.tensor(2**-7), weight_decay=0.0, limit=1e9)
    exact = torch.optim.AdamW(doubles, lr=2**-7, weight_decay=0.0)
    for scale in (1.0, -0.5, 3.0):
        gradient = scale * torch.tensor([1.0, -2.0, 0.5, 1e-3, -1e-2])
        ours.take([gradient])
        ours.step()
        doubles[0].grad = gradient.double()
        exact.step()
        assert torch.allclose(parameters[0].double(), doubles[0], rtol=1e-6, atol=0)


def test_the_same_gradients_give_the_same_bits() -> None:
    first, second = by_kernel(0.1, 1.0), by_kernel(0.1, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_gradients_that_lie_as_the_parameters_do_are_not_copied() -> None:
    results = []
    for together in (False, True):
        values, gradients = drawn()
        parameters = [nn.Parameter(value.clone()) for value in values]
        flat = FlatParameters(parameters)
        adamw = FlatAdamW(flat, torch.tensor(1e-2), weight_decay=0.1, limit=1.0)
        buffer, views = flat.another()
        for step in gradients:
            for view, gradient in zip(views, step, strict=True):
                view.copy_(gradient)
            adamw.take(views if together else step)
            assert (adamw._gradients.data_ptr() == buffer.data_ptr()) == together
            adamw.step()
        results.append(flat.values)
    assert torch.equal(*results)


def test_gradients_of_another_layout_are_copied() -> None:
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    layout = layout_of(parameters)
    buffer = torch.zeros(layout.size + 1)
    views = layout.views(buffer[1:], parameters)
    assert whole_of(views, layout) is not None
    assert whole_of([views[0], views[1].t()], layout) is None, "another order"
    assert whole_of([views[0], views[1].clone()], layout) is None, "another buffer"
    assert whole_of(buffer.narrow(0, 0, 7).split([3, 4]), layout) is None, "no gaps"
    assert whole_of([buffer[-3:]], layout_of(parameters[:1])) is None, "the buffer ends before"


def test_a_gradient_that_is_no_number_spoils_every_weight_as_torchs_clipping_does() -> None:
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 2))]
    adamw = FlatAdamW(FlatParameters(parameters), torch.tensor(1e-2), weight_decay=0.0, limit=1.0)
    adamw.take([torch.tensor([1.0, torch.nan, 1.0]), torch.ones(2, 2)])
    adamw.step()
    assert all(torch.isnan(parameter).all() for parameter in parameters)


def test_parameters_keep_their_values_on_the_way_into_one_buffer_and_out_again() -> None:
    values, _ = drawn()
    parameters = [nn.Parameter(value.clone()) for value in values]
    flat = FlatParameters(parameters)
    assert len({p.untyped_storage().data_ptr() for p in parameters}) == 1
    assert all(torch.equal(p, value) for p, value in zip(parameters, values, strict=True))
    flat.release()
    assert len({p.untyped_storage().data_ptr() for p in parameters}) == len(parameters)
    assert all(torch.equal(p, value) for p, value in zip(parameters, values, strict=True))
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in parameters)


def test_only_single_precision_is_served() -> None:
    with pytest.raises(ValueError, match="float64"):
        FlatParameters([nn.Parameter(torch.ones(2, dtype=torch.float64))])
