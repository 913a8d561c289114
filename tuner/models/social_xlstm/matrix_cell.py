"""Whose code runs the mLSTM: tuner's own, or the package `xlstm` where it is installed.

Both compute the same, which a test holds. The package's code that is used is one function of plain
torch operations; its Triton and CUDA kernels are not. docs/own-model.md says under which
licences they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tuner.errors import UsageError, first_line
from tuner.models.social_xlstm.variant_settings import Cell, Kind

# The mLSTM: a matrix memory with exponential gates, in two forms of one function.


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


PACKAGE = "xlstm"
LARGEST_EXPONENT = 80.0
"""e to this is a number in fp32, and what is divided by it is all but 0."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Before their functions, (R, A, S) each, fp32."""

    entering: Tensor
    forget: Tensor


class MatrixCell:
    """An mLSTM, by the code above. Shapes as in `mlstm_parallel` and `mlstm_last`."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        """What every step retrieves."""
        return mlstm_parallel(query, key, value, gates.entering, gates.forget)

    def last(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        """What the last step retrieves."""
        return mlstm_last(query, key, value, gates.entering, gates.forget)


class PackageCell(MatrixCell):
    """Of the package `xlstm`: its parallel form, in fp32, as its exponents overflow in fp16."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        # Of an input gate below it nothing is left, and the package's own exponent would overflow.
        entering = gates.entering.clamp(min=-LARGEST_EXPONENT)
        numbers = (each.to(entering.dtype) for each in (query, key, value))
        with torch.autocast(query.device.type, enabled=False):
            found = self._function(*numbers, entering.unsqueeze(-1), gates.forget.unsqueeze(-1))
        return found.to(value.dtype)

    def last(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        # The package has no form for one row: its other queries are of no account.
        every = query.expand_as(key).contiguous()
        return self.sequence(every, key, value, gates)[..., -1:, :]


def matrix_cell(cell: Cell) -> MatrixCell:
    """The one that a study asks for on this machine.

    Raises:
        UsageError: the package's is asked for and cannot be imported.
    """
    if cell is Cell.OWN:
        return MatrixCell()
    function, reason = package_function()
    if function is not None:
        return PackageCell(function)
    if cell is Cell.XLSTM:
        raise UsageError(
            f"cell = 'xlstm': {reason}; install it with pip install 'tuner[xlstm]' "
            "(its licences: docs/own-model.md), or set cell = 'own'"
        )
    return MatrixCell()


def cell_in_use(cell: Cell, kind: Kind) -> str:
    """What runs here, for the record of a trial: `xlstm 2.0.6`, `own`, or `own: xlstm is not
    installed` where the package would have been taken.
    """
    if kind is Kind.SLSTM or cell is Cell.OWN:
        return "own"
    function, reason = package_function()
    return f"{PACKAGE} {version(PACKAGE)}" if function is not None else f"own: {reason}"


@functools.cache
def package_function() -> tuple[Callable[..., Any] | None, str]:
    """The package's parallel mLSTM; or none, and why not."""
    try:
        version(PACKAGE)
        from xlstm.blocks.mlstm.backends import parallel_stabilized_simple
    except PackageNotFoundError:
        return None, f"the package {PACKAGE} is not installed"
    except Exception as error:  # noqa: BLE001 - whatever the import of a package runs into
        return None, f"the package {PACKAGE} cannot be imported ({first_line(error)})"
    return parallel_stabilized_simple, ""
