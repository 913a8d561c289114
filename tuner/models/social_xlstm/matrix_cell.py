"""Whose code runs the mLSTM: tuner's own, or the package `xlstm` where it is installed.

Both compute the same, which a test holds. The package's code that is used is one function of plain
torch operations; its Triton and CUDA kernels are not. docs/social-xlstm.md says under which
licences they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import torch
from torch import Tensor

from tuner.errors import UsageError, first_line
from tuner.models.social_xlstm.matrix_memory import mlstm_last, mlstm_parallel
from tuner.models.social_xlstm.variant_settings import Cell, Kind

PACKAGE = "xlstm"
LARGEST_EXPONENT = 80.0
"""e to this is a number in fp32, and what is divided by it is all but 0."""


class MatrixCell(Protocol):
    """An mLSTM. Shapes as in `mlstm_parallel` and `mlstm_last`."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        """What every step retrieves."""

    def last(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        """What the last step retrieves."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Before their functions, (R, A, S) each, fp32."""

    entering: Tensor
    forget: Tensor


class OwnCell:
    """Of `tuner.models.social_xlstm.matrix_memory`."""

    def sequence(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        return mlstm_parallel(query, key, value, gates.entering, gates.forget)

    def last(self, query: Tensor, key: Tensor, value: Tensor, gates: Gates) -> Tensor:
        return mlstm_last(query, key, value, gates.entering, gates.forget)


class PackageCell:
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
        return OwnCell()
    function, reason = package_function()
    if function is not None:
        return PackageCell(function)
    if cell is Cell.XLSTM:
        raise UsageError(
            f"cell = 'xlstm': {reason}; install it with pip install 'tuner[xlstm]' "
            "(its licences: docs/social-xlstm.md), or set cell = 'own'"
        )
    return OwnCell()


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
