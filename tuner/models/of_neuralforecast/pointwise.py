"""Convolutions that see one time step at a time, computed as the matrix products that they are.

neuralforecast's transformers write their feed-forward layers as `Conv1d` with a kernel of 1. In
fp32, with repeatable algorithms, cuDNN takes many times as long for one as cuBLAS does for the
product: an epoch of iTransformer at batch 256 took 1.76 s on an H200, and takes 0.26 s with it.
Weights and their names stay, so that what is trained here loads into the library's class.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class PointwiseConv1d(nn.Conv1d):
    """The same values as `Conv1d` with a kernel of 1, up to rounding."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(B, C, T) to (B, O, T)."""
        if not input.is_cuda:
            return super().forward(input)
        product = functional.linear(input.transpose(1, 2), self.weight.squeeze(-1), self.bias)
        return product.transpose(1, 2)


def as_products(model: nn.Module) -> None:
    """Change every such convolution in the model, in place."""
    for module in model.modules():
        if type(module) is nn.Conv1d and _sees_one_step(module):
            module.__class__ = PointwiseConv1d


def _sees_one_step(module: nn.Conv1d) -> bool:
    return (
        module.kernel_size == (1,)
        and module.stride == (1,)
        and module.padding in ((0,), "valid")
        and module.groups == 1
    )
