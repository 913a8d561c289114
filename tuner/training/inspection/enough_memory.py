"""A network that does not fit into memory, found before the memory is taken.

Where a system promises more memory than it has, no allocation fails: the first one to use too much
of it is ended by the kernel, without a word.
"""

from __future__ import annotations

import contextlib
import io
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.models.registry import build_model

COPIES = 4
"""Of each parameter in a training: itself, its gradient, AdamW's two moments."""

FACTORIES = (
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.eye, torch.arange, torch.linspace),
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.tril_indices),
    *(torch.triu_indices, torch.logspace, torch.hann_window, torch.hamming_window),
)
"""What makes tensors of a size that it is told."""


class TooLargeError(MemoryError):
    """A network was about to take more memory than is free."""


@contextlib.contextmanager
def within(free_bytes: int) -> Iterator[None]:
    """What is built in here may take so much: no tensor alone may be larger, and no network whose
    parameters are, `COPIES` times.

    Raises:
        TooLargeError: it would take more; at most a part of it was taken by then.
    """
    with _counted() as counted, _Guard(free_bytes):
        counted.most = free_bytes
        yield


def needed_bytes(
    architecture: Architecture, shapes: ModelShapes, hyperparameters: Hyperparameters
) -> tuple[int, bool]:
    """What a training of this network needs for its parameters and their optimiser, and whether
    that is all of it.

    The network is built without memory, on torch's device `meta`. A class that cannot be built so
    is counted as far as it comes.
    """
    with (
        _counted() as counted,
        torch.random.fork_rng(devices=[]),
        torch.device("meta"),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        try:
            build_model(architecture, shapes, hyperparameters)
        except Exception:  # noqa: BLE001 - a class may do anything, and was told of its failure
            return counted.n_bytes, False
    return counted.n_bytes, True


class _Counted:
    """The parameters that were registered, each once."""

    def __init__(self) -> None:
        self.most: int | None = None
        self.n_bytes = 0
        self._seen: dict[int, weakref.ref[nn.Parameter]] = {}

    def add(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        del module, name
        if parameter is None:
            return
        seen = self._seen.get(id(parameter))  # of one that is gone, another may have the number
        if seen is not None and seen() is parameter:
            return
        self._seen[id(parameter)] = weakref.ref(parameter)
        self.n_bytes += COPIES * parameter.nbytes
        if self.most is not None and self.n_bytes > self.most:
            raise TooLargeError


@contextlib.contextmanager
def _counted() -> Iterator[_Counted]:
    counted = _Counted()
    hook = register_module_parameter_registration_hook(counted.add)
    try:
        yield counted
    finally:
        hook.remove()


class _Guard(TorchFunctionMode):
    """Asks for the size of each tensor before it is made."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        given = dict(kwargs or {})
        if func in FACTORIES and self._size(func, args, given) > self._most:
            raise TooLargeError
        return func(*args, **given)

    @staticmethod
    def _size(func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> int:
        unmade = {k: v for k, v in given.items() if k not in ("out", "generator", "pin_memory")}
        try:
            return int(func(*args, **unmade | {"device": "meta"}).nbytes)
        except (RuntimeError, TypeError):  # the call itself will say what is wrong with it
            return 0
