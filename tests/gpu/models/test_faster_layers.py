"""On a GPU the faster forms of the library's layers give its values and gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tuner.models.of_neuralforecast.faster_layers import make_faster
from tuner.training.clock import exact_fp32

if not torch.cuda.is_available():  # the library takes seconds to import
    pytest.skip("needs a CUDA device", allow_module_level=True)

WHY = "neuralforecast, or what it needs, is not installed"
pytest.importorskip("neuralforecast.models", reason=WHY, exc_type=ImportError)

from neuralforecast.common._modules import CausalConv1d  # noqa: E402 - where it can be imported
from neuralforecast.models.nhits import _IdentityBasis  # noqa: E402


class Transposed(nn.Module):
    """As PatchTST has its norms: the features last, normed in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x.transpose(1, 2))
        return normed.transpose(1, 2)


def causal(dilation: int) -> nn.Module:
    found: nn.Module = CausalConv1d(
        4, 5, 3, padding=2 * dilation, dilation=dilation, activation="ReLU"
    )
    return found


class Forecast(nn.Module):
    """NHITS's last step: six knots for ten hours, at three levels."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.basis = _IdentityBasis(4, 10, mode, out_features=3)

    def forward(self, theta: Tensor) -> Tensor:
        backcast, forecast = self.basis(theta)
        return torch.cat([backcast, forecast.flatten(1)], dim=1)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (causal(1), (3, 4, 40)),
        (causal(32), (3, 4, 40)),
        (nn.Conv1d(4, 5, 1), (3, 4, 40)),
        (nn.Linear(4, 5), (3, 40, 4)),
        (nn.Linear(4, 5, bias=False), (3, 40, 4)),
        (nn.BatchNorm1d(5), (7, 5)),
        (Transposed(), (3, 40, 5)),
        (Forecast("linear"), (7, 4 + 3 * 6)),
        (Forecast("nearest"), (7, 4 + 3 * 6)),
    ],
    ids=[
        "causal",
        "causal, beyond its window",
        "pointwise",
        "linear",
        "no bias",
        "norm of rows",
        "norm of planes",
        "linear interpolation",
        "nearest knots",
    ],
)
def test_a_faster_layer_gives_the_plain_ones_values_and_gradients(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(copy.deepcopy(layer)).cuda()
    faster = copy.deepcopy(plain)
    make_faster(faster)
    x = torch.randn(shape, device="cuda")
    found = []
    with exact_fp32():
        for model in (plain, faster):
            given = x.clone().requires_grad_()
            out = model(given)
            gradients = torch.autograd.grad(out.square().sum(), [given, *model.parameters()])
            found.append([out, *gradients, *model.buffers()])
    for of_plain, of_faster in zip(*found, strict=True):
        torch.testing.assert_close(of_faster, of_plain, rtol=1e-4, atol=1e-4)
