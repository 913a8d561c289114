"""Where a network's step makes the host wait for the device, found without one.

A CUDA graph is launched whole. A step in which the host reads a value from the device, or copies
one to it, cannot be captured as such a graph.

Source: the operations are those that PyTorch's CUDA kernels synchronise for: their output's size
is known only on the device, or their result is a number of Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.data.windows import Batch
from tuner.models import dropout
from tuner.models.fault import on_one_line, place_now
from tuner.training.inspection.enough_memory import FACTORIES
from tuner.training.step import Step

_COPIED = {
    Tensor.item: ".item()",
    Tensor.tolist: ".tolist()",
    Tensor.cpu: ".cpu()",
    Tensor.numpy: ".numpy()",
    Tensor.__array__: "a tensor as a NumPy array",
    Tensor.__bool__: "a tensor as a condition",
    Tensor.__int__: "int() of a tensor",
    Tensor.__float__: "float() of a tensor",
    Tensor.__index__: "a tensor as a whole number",
    Tensor.new_tensor: ".new_tensor() of values on the host",
}
"""Functions that copy values to the host, or from it."""

_MADE = (torch.tensor, torch.as_tensor)
"""Functions that make tensors of the host's values."""

_VALUE = "aten::_local_scalar_dense"

_KERNELS: Mapping[str, str] = {
    _VALUE: "a tensor's value as a number",
    "aten::nonzero": "nonzero",
    "aten::masked_select": "masked_select",
    "aten::_unique": "unique",
    "aten::_unique2": "unique",
    "aten::unique_dim": "unique",
    "aten::unique_consecutive": "unique_consecutive",
    "aten::unique_dim_consecutive": "unique_consecutive",
    "aten::equal": "torch.equal",
    "aten::bincount": "bincount",
    "aten::_pack_padded_sequence": "pack_padded_sequence",
    "aten::_linalg_check_errors": "a result of torch.linalg, which is checked,",
}
"""Operations whose kernels wait, however they are called."""

_WRITING = ("aten::index_put", "aten::index_put_", "aten::_index_put_impl_")

_MASKS = (torch.bool, torch.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One line of the user's that waits."""

    where: str
    """`net.py, line 12`; empty where no line of the user's was being run."""
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """All that were found, each line once for each thing that it does."""

    found: tuple[Wait, ...] = ()
    failed: str = ""
    """Why it could not be looked for, in one line."""


def host_waits(step: Step, batch: Batch) -> Waits:
    """What waits in a forward and a backward pass in training mode, and in a validation pass."""
    notes = _Notes()
    try:
        with _Calls(notes), _Kernels(notes):
            step.model.train()
            step.training_loss(batch).backward()  # type: ignore[no-untyped-call]
            step.model.eval()
            with torch.no_grad():
                step.loss(batch)
    except Exception as error:  # noqa: BLE001 - without onlookers the same passes went well
        return Waits(found=notes.found(), failed=on_one_line(error))
    return Waits(found=notes.found())


def _place() -> str | None:
    """None in our dropout, which does on a CPU what it does not do on a GPU."""
    return place_now(host_waits.__code__, but_in=dropout.__file__)


class _Notes:
    """What was seen, in the order of its first time."""

    def __init__(self) -> None:
        self._seen: dict[Wait, None] = {}
        self._read_at: set[str] = set()

    def call(self, what: str) -> None:
        if (where := _place()) is not None:
            self._read_at.add(where)
            self._seen[Wait(where=where, what=what)] = None

    def kernel(self, what: str) -> None:
        if (where := _place()) is not None:
            self._seen[Wait(where=where, what=what)] = None

    def found(self) -> tuple[Wait, ...]:
        """Those without a line are consequences of those with one, in backward, where there are.

        That a value is read is not said again of a line whose call was noted by its name.
        """
        named = [
            wait
            for wait in self._seen
            if wait.what != _KERNELS[_VALUE] or wait.where not in self._read_at
        ]
        placed = [wait for wait in named if wait.where]
        return tuple(placed or named)


class _Calls(TorchFunctionMode):
    """Sees torch's functions as they are called: on a CPU, some do nothing that a kernel does."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        given = dict(kwargs or {})
        result = func(*args, **given)
        if what := _of_call(func, args, given, result):
            self._notes.call(what)
        return result


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operations that are left when torch has taken a call apart."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._notes = notes

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        given = dict(kwargs or {})
        operation, _, overload = func.name().partition(".")
        if what := _of_kernel(operation, overload, args, given):
            self._notes.kernel(what)
        return func(*args, **given)


def _of_call(func: Any, args: Sequence[Any], given: Mapping[str, Any], result: Any) -> str:
    if func is Tensor.to and "cpu" in filter(_is_text, (*args, *given.values())):
        return '.to("cpu")'
    if func in _COPIED:
        return _COPIED[func]
    if not isinstance(result, Tensor):
        return ""
    on_host = given.get("device") is None and result.ndim > 0
    if func in _MADE and not isinstance(args[0] if args else None, Tensor):
        # A lone number that stays on the host is handed to a kernel as a number.
        copied = on_host or given.get("device") is not None
        return f"torch.{func.__name__}() of values on the host" if copied else ""
    if func in FACTORIES and on_host:
        return f"torch.{func.__name__}() without device="
    return ""


def _of_kernel(operation: str, overload: str, args: Sequence[Any], given: Mapping[str, Any]) -> str:
    if operation in _KERNELS:
        return _KERNELS[operation]
    if operation == "aten::index" and _has_mask(args[1]):
        return "indexing with a mask"
    if operation in _WRITING and _has_mask(args[1]):
        # A single number is written by a kernel that needs no count.
        return "writing through a mask" if args[2].numel() != 1 else ""
    if (operation, overload) == ("aten::repeat_interleave", "Tensor"):
        return "repeat_interleave" if given.get("output_size") is None else ""
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _has_mask(indices: Sequence[Tensor | None]) -> bool:
    return any(index is not None and index.dtype in _MASKS for index in indices)
