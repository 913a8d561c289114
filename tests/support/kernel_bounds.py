"""What the interpreter lets pass and a GPU does not: access beside tensors, broken promises.

Triton's interpreter takes any address. In here every pointer that a kernel is given carries in its
highest bits, which no address uses, the number of the tensor it belongs to; a load or store takes
them off again, and must lie in that tensor wherever its mask is set. What a kernel says of its
numbers with `tl.multiple_of`, `tl.max_contiguous` and `tl.max_constancy` must be so: on a GPU
several are loaded at once on the strength of it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from triton.runtime import interpreter

ADDRESS_BITS = 48
ADDRESS = np.uint64((1 << ADDRESS_BITS) - 1)


class Given(NamedTuple):
    """A tensor among a launch's arguments: its name there, and the bytes that are its own."""

    name: str
    tensor: Any
    start: int
    end: int


class OutOfBoundsError(AssertionError):
    """A kernel read, wrote or promised what it must not."""


class _Launch:
    """What one kernel was given."""

    def __init__(self) -> None:
        self.kernel = "no kernel"
        self.given: list[Given] = []

    def names(self, name: str, argument: Any) -> None:
        """Remember the tensors in an argument, in named tuples too."""
        if hasattr(argument, "data_ptr"):
            start = argument.data_ptr()
            end = start + argument.numel() * argument.element_size()
            self.given.append(Given(name, argument, start, end))
        elif isinstance(argument, tuple):
            fields = getattr(argument, "_fields", range(len(argument)))
            for field, value in zip(fields, argument, strict=True):
                self.names(f"{name}.{field}", value)

    def marked(self, tensor: Any) -> int:
        """A tensor's address, with its number in the highest bits; 0 is the number of none."""
        number = next(n for n, given in enumerate(self.given, 1) if given.tensor is tensor)
        return int(tensor.data_ptr()) | number << ADDRESS_BITS

    def plain(
        self, pointers: NDArray[np.uint64], mask: NDArray[np.bool_], size: int, what: str
    ) -> NDArray[np.uint64]:
        """The addresses behind marked pointers, of elements of so many bytes.

        Raises:
            OutOfBoundsError: one of those that the mask lets through is not in its tensor.
        """
        addresses = pointers & ADDRESS
        numbers = pointers[mask] >> np.uint64(ADDRESS_BITS)
        used = addresses[mask].astype(np.int64)
        for number in np.unique(numbers):
            given = self.given[int(number) - 1] if 0 < number <= len(self.given) else None
            if given is None:
                raise OutOfBoundsError(f"{self.kernel} {what} something that is no argument's")
            mine = used[numbers == number]
            first, last = int(mine.min()) - given.start, int(mine.max()) + size - given.end
            if first < 0 or last > 0:
                side = (
                    f"{-first // size} before the first"
                    if first < 0
                    else f"{-(-last // size)} after the last"
                )
                raise OutOfBoundsError(
                    f"{self.kernel} {what} {given.name}, {side} element, counted in {size} bytes"
                )
            if (mine % size).any():
                raise OutOfBoundsError(
                    f"{self.kernel} {what} {given.name} {size} bytes at once "
                    "where that is not aligned"
                )
        return addresses


@contextlib.contextmanager
def bounds_checked() -> Iterator[None]:
    """In here what kernels do is checked.

    Raises:
        OutOfBoundsError: within Triton's `InterpreterError`, by the kernel's launch.
    """
    launch = _Launch()
    of_arguments = interpreter.GridExecutor._init_args_hst
    load, store = (
        interpreter.InterpreterBuilder.create_masked_load,
        interpreter.InterpreterBuilder.create_masked_store,
    )
    convert = interpreter._implicit_cvt

    def remember(executor: Any, arguments: Any, keywords: Any) -> Any:
        found, named = of_arguments(executor, arguments, keywords)
        launch.kernel, launch.given = executor.fn.__name__, []
        for name, argument in [*zip(executor.arg_names, found, strict=False), *named.items()]:
            launch.names(name, argument)
        return found, named

    def mark(argument: Any) -> Any:
        made = convert(argument)
        if hasattr(argument, "data_ptr"):
            made.handle.data = np.array([launch.marked(argument)], dtype=np.uint64)
        return made

    def checked(pointers: Any, mask: Any, what: str) -> Any:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        allowed = np.broadcast_to(mask.data.astype(bool), pointers.data.shape)
        return interpreter.TensorHandle(
            launch.plain(pointers.data, allowed, size, what), pointers.dtype
        )

    def checked_load(builder: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        return load(builder, checked(pointers, mask, "reads"), mask, *others)

    def checked_store(builder: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        return store(builder, checked(pointers, mask, "writes"), value, mask, *others)

    def promise(handle: Any, name: str, sizes: list[int]) -> None:
        check_promise(launch.kernel, handle, name, sizes)

    with (
        mock.patch.object(interpreter.GridExecutor, "_init_args_hst", remember),
        mock.patch.object(interpreter, "_implicit_cvt", mark),
        mock.patch.object(interpreter.InterpreterBuilder, "create_masked_load", checked_load),
        mock.patch.object(interpreter.InterpreterBuilder, "create_masked_store", checked_store),
        mock.patch.object(interpreter.TensorHandle, "set_attr", promise),
    ):
        yield


def check_promise(kernel: str, handle: Any, name: str, sizes: list[int]) -> None:
    """Of all elements, or of each group of so many along an axis.

    Raises:
        OutOfBoundsError: it does not hold.
    """
    pointer = isinstance(handle.dtype, interpreter.tl.pointer_type)
    unit = max(1, handle.get_element_ty().primitive_bitwidth // 8) if pointer else 1
    values = (handle.data & ADDRESS if pointer else handle.data).astype(np.int64)
    if name == "tt.divisibility":
        size = math.prod(sizes) if values.size == 1 else max(sizes)
        if (values % size).any():
            one = values[values % size != 0].flat[0]
            raise OutOfBoundsError(f"{kernel} promises multiples of {size}, and one is {one}")
        return
    step = unit if name == "tt.contiguity" else 0
    for axis, size in enumerate(sizes):
        if values.shape[axis] < size:
            raise OutOfBoundsError(f"{kernel} promises groups of {size} among {values.shape[axis]}")
        lined = np.moveaxis(values, axis, -1).reshape(-1, size)
        if (np.diff(lined, axis=-1) != step).any():
            raise OutOfBoundsError(
                f"{kernel} promises groups of {size} numbers {step} apart along axis {axis}"
            )


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """In here new memory holds what shows in a result: no number, or the largest."""
    plain, plain_like = torch.empty, torch.empty_like

    def spoilt(made: Tensor) -> Tensor:
        if made.is_floating_point():
            return made.fill_(torch.nan)
        return made.fill_(True if made.dtype == torch.bool else torch.iinfo(made.dtype).max)

    with (
        mock.patch.object(
            torch, "empty", lambda *sizes, **options: spoilt(plain(*sizes, **options))
        ),
        mock.patch.object(
            torch, "empty_like", lambda *given, **options: spoilt(plain_like(*given, **options))
        ),
    ):
        yield
