"""Windows clear of kinks: no input of a ReLU is so near zero that rounding changes its gradient."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

MARGIN = 1e-5
"""Of ReLU inputs that are of the order of 1: fp32 errs by 1e-6 or less in nearly all of them."""


class _Nearest(TorchDispatchMode):
    """In here every ReLU notes how near to zero its inputs come, by window: the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.by_relu: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.relu.default:
            self.by_relu.append(args[0].abs().flatten(1).amin(1))
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def clear_of_kinks(model: nn.Module, inputs: Sequence[Tensor | None]) -> Tensor:
    """(B,), whether all ReLU inputs are further from 0 than `MARGIN`: in float64, no dropout.

    In fp32 an input that near may lie on the other side, and one such element changes the gradient
    of a bias by up to 1e-3 of its norm: no error of anyone's. For networks whose windows do not see
    one another, so not for batchnorm.
    """
    exact = copy.deepcopy(model).double().eval()
    with _Nearest() as nearest:
        exact(*(None if tensor is None else tensor.double() for tensor in inputs))
    assert nearest.by_relu, "the network calls another function now"
    return torch.stack(nearest.by_relu).amin(0) > MARGIN
