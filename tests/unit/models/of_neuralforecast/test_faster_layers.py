"""What the faster forms of the library's layers are made of, and which layers take them."""

from __future__ import annotations

import copy

import pytest
import torch
from neuralforecast.common._modules import CausalConv1d
from neuralforecast.models.nhits import _IdentityBasis
from torch import Tensor, nn
from torch.nn import functional

from tuner.models.of_neuralforecast.faster_layers import (
    CausalProduct,
    InterpolatingBasis,
    PointwiseConv1d,
    RowsBatchNorm1d,
    RowsLinear,
    make_faster,
    seen_steps,
)

STEPS = 12


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (2, 1), (3, 2), (5, 4), (3, 64)])
def test_a_causal_convolution_is_a_product_of_the_steps_it_sees(kernel: int, dilation: int) -> None:
    torch.manual_seed(0)
    conv = nn.Conv1d(4, 3, kernel, dilation=dilation).double()
    x = torch.randn(2, 4, STEPS, dtype=torch.float64, requires_grad=True)

    def padded() -> Tensor:
        out: Tensor = conv(functional.pad(x, ((kernel - 1) * dilation, 0)))
        return out

    def as_product() -> Tensor:
        seen = seen_steps(x.transpose(1, 2), kernel, dilation)
        weight = conv.weight.permute(0, 2, 1).flatten(1)
        return functional.linear(seen, weight, conv.bias).transpose(1, 2)

    slope = torch.randn(2, 3, STEPS, dtype=torch.float64)
    found = []
    for forward in (padded, as_product):
        out = forward()
        found.append([out, *torch.autograd.grad(out, [x, *conv.parameters()], slope)])
    for of_conv, of_product in zip(*found, strict=True):
        torch.testing.assert_close(of_product, of_conv, rtol=1e-12, atol=1e-12)


def test_layers_that_have_a_faster_form_take_it_and_no_others_do() -> None:
    causal = CausalConv1d(2, 3, kernel_size=2, padding=4, dilation=4, activation="ReLU")
    strided = CausalConv1d(2, 3, kernel_size=2, padding=4, dilation=4, activation="ReLU", stride=2)
    model = nn.ModuleList(
        [
            causal,
            strided,
            nn.Conv1d(2, 2, 1),
            nn.Conv1d(2, 2, 3),
            nn.Conv1d(2, 2, 1, groups=2),
            nn.BatchNorm1d(3),
            nn.Linear(2, 2),
            _IdentityBasis(4, 10, "linear", out_features=3),
            _IdentityBasis(4, 10, "cubic"),
        ]
    )
    names = list(model.state_dict())
    make_faster(model)
    assert [type(each) for each in model] == [
        CausalProduct,
        CausalConv1d,
        PointwiseConv1d,
        nn.Conv1d,
        nn.Conv1d,
        RowsBatchNorm1d,
        RowsLinear,
        InterpolatingBasis,
        _IdentityBasis,
    ]
    assert list(model.state_dict()) == names


def test_on_a_cpu_they_are_the_librarys_own_to_the_bit() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(
        CausalConv1d(4, 6, kernel_size=3, padding=4, dilation=2, activation="ReLU"),
        nn.Conv1d(6, 5, 1),
        nn.BatchNorm1d(5),
        nn.Linear(STEPS, 3),
    )
    faster = copy.deepcopy(plain)
    make_faster(faster)
    x = torch.randn(2, 4, STEPS)
    assert torch.equal(faster(x), plain(x))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_a_basis_that_interpolates_gives_what_the_librarys_gives(mode: str) -> None:
    torch.manual_seed(0)
    plain = _IdentityBasis(4, 10, mode, out_features=3)
    faster = copy.deepcopy(plain)
    make_faster(faster)
    theta = torch.randn(7, 4 + 3 * 6)
    for of_faster, of_plain in zip(faster(theta), plain(theta), strict=True):
        assert torch.equal(of_faster, of_plain)
