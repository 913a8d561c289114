"""The mLSTM: a matrix memory with exponential gates, in two forms of one function.

Source: Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024 (arXiv:2405.04517):
equations 19 to 27, stabilised as in appendix A, and appendix A.3 (parallel). Written
from the paper.

Exponents are differences from a stabiliser, so none is above 0. It cancels out of the result, and
so is kept out of the gradient. All exponents are in fp32, whatever the products are in.

Legend: R rows, one a detector and window, A heads, S time steps, D numbers a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-6
"""Added to the normaliser, as the authors' code does."""


def mlstm_parallel(
    query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor
) -> Tensor:
    """All time steps at once.

    Args:
        query: (R, A, S, D), as `key` and `value`.
        key: its scale, the root of D, is taken off in here.
        value: what is remembered.
        input_gate: (R, A, S), before the exponential, fp32.
        forget_gate: (R, A, S), before the sigmoid, fp32.

    Returns:
        (R, A, S, D), what the memory holds for each query, before the output gate.
    """
    decay = functional.logsigmoid(forget_gate).cumsum(dim=-1)  # (R, A, S)
    exponents = decay.unsqueeze(-1) + (input_gate - decay).unsqueeze(-2)  # (R, A, S, S)
    steps = exponents.shape[-1]
    later = torch.ones(steps, steps, dtype=torch.bool, device=exponents.device).triu(1)
    return _retrieved(query, key, value, exponents.masked_fill(later, -math.inf))


def mlstm_last(
    query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor
) -> Tensor:
    """The last row of `mlstm_parallel`, without the others: S exponents a head in place of S * S.

    Args:
        query: (R, A, 1, D), of the last time step; the rest as there.
        key: (R, A, S, D).
        value: (R, A, S, D).
        input_gate: (R, A, S).
        forget_gate: (R, A, S).

    Returns:
        (R, A, 1, D).
    """
    decay = functional.logsigmoid(forget_gate).cumsum(dim=-1)
    exponents = (decay[..., -1:] - decay + input_gate).unsqueeze(-2)  # (R, A, 1, S)
    return _retrieved(query, key, value, exponents)


def single(numbers: Tensor) -> Tensor:
    """In fp32, where they are in 16 bits."""
    return numbers.float() if numbers.dtype in (torch.float16, torch.bfloat16) else numbers


def _retrieved(query: Tensor, key: Tensor, value: Tensor, exponents: Tensor) -> Tensor:
    """What queries (R, A, N, D) find under exponents (R, A, N, S)."""
    stabiliser = exponents.detach().amax(dim=-1, keepdim=True)
    scaled = query / math.sqrt(query.shape[-1])
    scores = single(scaled @ key.transpose(-2, -1)) * torch.exp(exponents - stabiliser)
    weights = scores / _divisor(scores.sum(dim=-1, keepdim=True), stabiliser)
    return weights.to(value.dtype) @ value


def _divisor(total: Tensor, stabiliser: Tensor) -> Tensor:
    """It may be infinite, where all gates are all but closed: nothing is retrieved then."""
    return torch.maximum(total.abs(), torch.exp(-stabiliser)) + EPS
