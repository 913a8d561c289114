"""Changes of a network for as long as something is timed: what it would be without a fault."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

READS = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "numpy", "cpu")
"""Methods of a tensor that hand its values to the host, which waits for them."""


def without(names: Sequence[str]) -> Callable[[nn.Module], AbstractContextManager[object]]:
    """A patch under which these parts of a network cost nothing: each gives again what it gave
    first, as a constant.
    """

    @contextmanager
    def patched(model: nn.Module) -> Iterator[None]:
        parts = [model.get_submodule(name) for name in names]
        plain = [part.forward for part in parts]
        for part, forward in zip(parts, plain, strict=True):
            part.forward = _remembered(forward)
        try:
            yield
        finally:
            for part in parts:
                del part.forward

    return patched


def _remembered(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The first result for inputs of each kind, again and again."""
    known: dict[object, Any] = {}

    def constant(*args: Any, **named: Any) -> Any:
        key = tuple(_kind(each) for each in (*args, *named.values()))
        if key not in known:
            with torch.no_grad():
                known[key] = tree_map_only(Tensor, Tensor.detach, forward(*args, **named))
        return known[key]

    return constant


def _kind(value: object) -> object:
    return (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else type(value)


@contextmanager
def values_remembered(ours: Callable[[str], bool] = lambda _file: False) -> Iterator[None]:
    """In here a line that reads a tensor's value gets what it got first, without waiting.

    Only for a training whose result nobody wants.

    Args:
        ours: whether a file's lines read as before; torch's own do in any case.
    """
    plain = {name: getattr(Tensor, name) for name in READS}
    for name, method in plain.items():
        setattr(Tensor, name, _read_once(method, ours))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(Tensor, name, method)


def _read_once(method: Callable[..., Any], ours: Callable[[str], bool]) -> Callable[..., Any]:
    known: dict[tuple[str, int], Any] = {}

    def read(tensor: Tensor, *args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)  # noqa: SLF001 - whoever calls is what it is about
        file, line = frame.f_code.co_filename, frame.f_lineno
        if of_torch(file) or ours(file):
            return method(tensor, *args, **named)
        if (file, line) not in known:
            known[file, line] = method(tensor, *args, **named)
        return known[file, line]

    return read


def of_torch(file: str) -> bool:
    """Whether a file is one of torch's."""
    return "/torch/" in file or file.startswith("<")


def no_waits(model: nn.Module) -> AbstractContextManager[object]:
    """A patch under which no line of a network waits for a value."""
    del model
    return values_remembered()
