"""Triton's interpreter without what it repeats to no effect: that is half of its time."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import triton.language as tl
from triton.runtime import interpreter


@contextlib.contextmanager
def fast_interpreter() -> Iterator[None]:
    """In here kernels compute the same in less time.

    Each call of a function from a kernel replaces the language's operations again, by the same
    ones: once a launch is enough. Each sum and product of integers is computed a second time and
    held against the type's limits, and then nothing is done about it: assertions are off. What
    NumPy calls a type never changes. And a block's sizes are unwrapped, checked and written out for
    each block and its type, although there are few different ones.
    """
    launch, replace_language = interpreter.GridExecutor.__call__, interpreter._patch_lang
    numpys = interpreter._get_np_dtype
    known: dict[str, Any] = {}
    replaced: set[str] = set()

    def launch_afresh(executor: Any, *given: Any, **named: Any) -> Any:
        replaced.clear()  # at the end of a launch the language is as it was
        return launch(executor, *given, **named)

    def replace_once(function: Any) -> Any:
        here = _languages(function)
        if here <= replaced:
            return None
        replaced.update(here)
        return replace_language(function)

    def remembered(kind: Any) -> Any:
        if (name := kind.scalar.name) not in known:
            known[name] = numpys(kind)
        return known[name]

    blocks = _Blocks()
    builder = interpreter.interpreter_builder
    assert not builder.options.debug, "sums of integers that are too large would be noticed"
    with (
        mock.patch.object(interpreter.GridExecutor, "__call__", launch_afresh),
        mock.patch.object(interpreter, "_patch_lang", replace_once),
        mock.patch.object(interpreter, "_get_np_dtype", remembered),
        mock.patch.object(tl.block_type, "__init__", blocks.of_type()),
        mock.patch.object(tl.tensor, "__init__", blocks.of_tensor()),
        mock.patch.object(builder, "options", replace(builder.options, sanitize_overflow=False)),
    ):
        yield


@functools.cache
def _languages(function: Any) -> frozenset[str]:
    """The names of Triton's modules of operations that a function sees."""
    modules = [value for value in function.__globals__.values() if inspect.ismodule(value)]
    return frozenset(module.__name__ for module in modules if module in (tl, tl.core))


class _Blocks:
    """What Triton makes of a block's sizes, once for all blocks of these sizes."""

    def __init__(self) -> None:
        self._of_types: dict[tuple[int, ...], Any] = {}
        self._of_tensors: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def of_type(self) -> Callable[[Any, Any, Any], None]:
        """In place of `block_type.__init__`."""
        plain = tl.block_type.__init__

        def init(made: Any, element_ty: Any, shape: Any) -> None:
            sizes = _sizes(shape)
            known = None if sizes is None else self._of_types.get(sizes)
            if known is not None:
                made.element_ty = element_ty
                made.shape, made.numel, text = known
                made.name = f"<{text}, {element_ty}>"
                return
            plain(made, element_ty, shape)
            if sizes is not None:
                self._of_types[sizes] = (made.shape, made.numel, str(made.shape))

        return init

    def of_tensor(self) -> Callable[[Any, Any, Any], None]:
        """In place of `tensor.__init__`."""
        plain = tl.tensor.__init__

        def init(made: Any, handle: Any, type: Any) -> None:  # noqa: A002 - its name there
            sizes = tuple(type.shape.values) if type.is_block() else ()
            if sizes not in self._of_tensors:
                plain(made, handle, type)
                self._of_tensors[sizes] = (made.numel, made.shape)
                return
            made.handle, made.type, made.dtype = handle, type, type.scalar
            made.numel, made.shape = self._of_tensors[sizes]

        return init


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """Whole numbers as they are; None for whatever Triton has to look into itself."""
    values = shape.values if isinstance(shape, tl.tuple) else shape
    if not isinstance(values, (list, tuple)):
        return None
    return tuple(values) if set(map(type, values)) <= {int} else None
