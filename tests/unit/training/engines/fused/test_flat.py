"""Parameters in one buffer: filled from elsewhere at once, and kept in one copy with what lies
apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tuner.kernels.step_kernels import FlatParameters
from tuner.training.engines.fused_step import FlatSnapshot
from tuner.training.model_state import model_state


def network() -> nn.Sequential:
    """With buffers, and with a layer that is not trained."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[2].requires_grad_(requires_grad=False)
    return model


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def change(model: nn.Module) -> None:
    with torch.no_grad():
        for tensor in model_state(model):
            tensor.add_(1)


def test_a_snapshot_holds_what_lies_in_the_buffer_and_what_does_not() -> None:
    model, other = network(), network()
    best = FlatSnapshot(model, FlatParameters(trained(model)))
    for _ in range(2):
        expected = [tensor.clone() for tensor in model_state(model)]
        best.take(model)
        change(model)
        assert all(torch.equal(p, q) for p, q in zip(best.tensors, expected, strict=True))
    best.give_to(other)
    change(model)
    assert all(torch.equal(p, q) for p, q in zip(model_state(other), expected, strict=True))
    best.restore(model)
    assert all(torch.equal(p, q) for p, q in zip(model_state(model), expected, strict=True))


def test_a_buffer_is_filled_in_place_with_zeros_in_its_gaps() -> None:
    model, other = network(), network()
    flat = FlatParameters(trained(model))
    before = flat.values.data_ptr()
    flat.fill(trained(other))
    assert flat.values.data_ptr() == before
    for ours, theirs in zip(trained(model), trained(other), strict=True):
        assert torch.equal(ours, theirs)
    total = sum(float(parameter.detach().double().sum()) for parameter in trained(other))
    assert float(flat.values.double().sum()) == pytest.approx(total)
    with pytest.raises(ValueError, match="another network's"):
        flat.fill([nn.Parameter(torch.zeros(3))])
