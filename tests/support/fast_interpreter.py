"""Triton's interpreter without what it repeats to no effect: that is half of its time."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
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
    held against the type's limits, and then nothing is done about it: assertions are off. And what
    NumPy calls a type never changes.
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

    builder = interpreter.interpreter_builder
    assert not builder.options.debug, "sums of integers that are too large would be noticed"
    with (
        mock.patch.object(interpreter.GridExecutor, "__call__", launch_afresh),
        mock.patch.object(interpreter, "_patch_lang", replace_once),
        mock.patch.object(interpreter, "_get_np_dtype", remembered),
        mock.patch.object(builder, "options", replace(builder.options, sanitize_overflow=False)),
    ):
        yield


@functools.cache
def _languages(function: Any) -> frozenset[str]:
    """The names of Triton's modules of operations that a function sees."""
    modules = [value for value in function.__globals__.values() if inspect.ismodule(value)]
    return frozenset(module.__name__ for module in modules if module in (tl, tl.core))
