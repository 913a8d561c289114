"""What is changed in somebody else's training, from outside, to see what it would give."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, Dataset, IterableDataset

# Changes of a network for as long as something is timed: what it would be without a fault.


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
def replaced(kind: type, by: Mapping[str, Any]) -> Iterator[None]:
    """In here a class has these methods in place of its own."""
    plain = {name: getattr(kind, name) for name in by}
    for name, method in by.items():
        setattr(kind, name, method)
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(kind, name, method)


def values_remembered(
    ours: Callable[[str], bool] = lambda _file: False,
) -> AbstractContextManager[None]:
    """In there a line that reads a tensor's value gets what it got first, without waiting.

    Only for a training whose result nobody wants.

    Args:
        ours: whether a file's lines read as before; torch's own do in any case.
    """
    return replaced(Tensor, {name: _read_once(getattr(Tensor, name), ours) for name in READS})


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


def no_waits(_model: nn.Module) -> AbstractContextManager[object]:
    """A patch under which no line of a network waits for a value."""
    return values_remembered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Those of one run; none of them is the script as it is."""

    workers: int | None = None
    prefetch: int | None = None
    """Batches that each worker of a loader makes ahead."""
    pinned: bool = False
    """Each loader's batches lie in pinned memory, and are copied without waiting."""
    to_none: bool = False
    """`zero_grad` lets gradients go, and fills them with no zeros."""
    batch: float | None = None
    """By which each loader's batch size is multiplied."""
    one_sample: bool = False
    """Each loader's data set gives its first sample again and again."""
    precision: str | None = None
    """`bf16`, `tf32`."""
    fused: bool = False
    accumulate: int = 1
    """Batches whose gradients add up to one step."""
    compiled: str | None = None
    """A mode of torch.compile."""
    no_reads: bool = False
    """A line that reads a tensor's value gets what it got first."""
    without: tuple[str, ...] = ()
    """Parts of the network that cost nothing."""

    def and_those(self, other: Changes) -> Changes:
        """Both; where they say different things of the same, as `other` has it."""
        said = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(self, **{k: v for k, v in said.items() if v != getattr(Changes(), k)})


class _OneSample(Dataset[Any]):
    """A data set that is prepared: its first sample, as often as somebody asks."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self._kept: Any = None

    def __len__(self) -> int:
        return len(self.plain)

    def __getitem__(self, index: Any) -> Any:
        if self._kept is None:
            self._kept = self.plain[index]
        return self._kept


FUSABLE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


@contextmanager
def changed(changes: Changes) -> Iterator[None]:
    """In here what is made is made in the changed way; what needs the network is `on_network`'s."""
    with ExitStack() as stack:
        loading = (changes.workers, changes.prefetch, changes.batch)
        if changes.one_sample or changes.pinned or any(each is not None for each in loading):
            stack.enter_context(_constructor(DataLoader, _loader_of(changes)))
        for kind in FUSABLE if changes.fused else ():
            stack.enter_context(_constructor(kind, _fused))
        if changes.pinned:
            by = {name: _not_waiting(getattr(Tensor, name)) for name in ("to", "cuda")}
            stack.enter_context(replaced(Tensor, by))
        if changes.to_none:
            zero = Optimizer.zero_grad
            by = {"zero_grad": lambda self, set_to_none=True: zero(self, set_to_none=True)}  # noqa: ARG005
            stack.enter_context(replaced(Optimizer, by))
        if changes.accumulate > 1:
            stack.enter_context(_accumulated(changes.accumulate))
        if changes.no_reads:
            stack.enter_context(values_remembered(lambda file: "/tuner/" in file))
        if changes.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        elif changes.precision == "bf16":
            where = "cuda" if torch.cuda.is_available() else "cpu"
            stack.enter_context(torch.autocast(where, dtype=torch.bfloat16))
        yield


def on_network(network: nn.Module, changes: Changes, stack: ExitStack) -> None:
    """Once the network is known: after its first step."""
    if changes.without:
        stack.enter_context(without(changes.without)(network))
    if changes.compiled is not None:
        # The instance's forward: whatever hooks there are stay outside of what is compiled.
        network.forward = torch.compile(network.forward, mode=changes.compiled)


def _constructor(
    kind: type, change: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]
) -> AbstractContextManager[None]:
    """Every new one of a class gets changed arguments."""
    plain = kind.__init__  # type: ignore[misc]

    @functools.wraps(plain)
    def made(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *change(args, named), **named)

    return replaced(kind, {"__init__": made})


def _not_waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    def moved(tensor: Tensor, *args: Any, **named: Any) -> Any:
        return method(tensor, *args, **{"non_blocking": True, **named})

    return moved


@contextmanager
def _accumulated(batches: int) -> Iterator[None]:
    """Optimisers that are made in here step each so many calls, and keep gradients until then."""
    plain = Optimizer.__init__

    def made(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *args, **named)
        calls, step, zero = itertools.count(1), self.step, self.zero_grad
        due = [False]

        def seldom(_self: Any, closure: Any = None) -> Any:
            due[0] = next(calls) % batches == 0
            if due[0]:
                return step() if closure is None else step(closure)
            return None if closure is None else closure()  # of Lightning: the pass itself

        # A schedule wants a method, whose function it asks for.
        self.step = MethodType(seldom, self)
        self.zero_grad = lambda *given, **said: zero(*given, **said) if due[0] else None

    with replaced(Optimizer, {"__init__": made}):
        yield


def _fused(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    if not named.get("foreach"):
        named.setdefault("fused", True)
    return args


def _loader_of(changes: Changes) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """Positional arguments of DataLoader: dataset, batch_size, shuffle, sampler, ..."""

    def change(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        named.update(zip(("dataset", "batch_size", "shuffle"), args, strict=False))
        if len(args) > 3:  # noqa: PLR2004
            raise TypeError("a DataLoader with more positional arguments is left as it is")
        if isinstance(named["dataset"], IterableDataset):
            return ()
        if changes.one_sample:
            named["dataset"] = _OneSample(named["dataset"])
        if changes.workers is not None:
            named["num_workers"] = changes.workers
            named["persistent_workers"] = changes.workers > 0
            if not changes.workers:
                named.pop("prefetch_factor", None)
        if changes.prefetch is not None and named.get("num_workers"):
            named["prefetch_factor"] = changes.prefetch
        if changes.pinned:
            named["pin_memory"] = True
        if changes.batch is not None and named.get("batch_sampler") is None:
            named["batch_size"] = max(1, int((named.get("batch_size") or 1) * changes.batch))
        return ()

    return change
