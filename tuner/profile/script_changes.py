"""What is changed in somebody else's training, from outside, to see what it would give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tuner.profile.what_if import values_remembered, without


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Those of one run; none of them is the script as it is."""

    workers: int | None = None
    batch: float | None = None
    """By which each loader's batch size is multiplied."""
    one_sample: bool = False
    """Each loader's data set gives its first sample again and again."""
    precision: str | None = None
    """`bf16`, `tf32`."""
    fused: bool = False
    compiled: str | None = None
    """A mode of torch.compile."""
    no_reads: bool = False
    """A line that reads a tensor's value gets what it got first."""
    without: tuple[str, ...] = ()
    """Parts of the network that cost nothing."""


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
        loaders = (changes.workers, changes.batch, changes.one_sample or None)
        if any(each is not None for each in loaders):
            stack.enter_context(_constructor(DataLoader, _loader_of(changes)))
        if changes.fused:
            for kind in FUSABLE:
                stack.enter_context(_constructor(kind, _fused))
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


@contextmanager
def _constructor(
    kind: type, change: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]
) -> Iterator[None]:
    """Every new one of a class gets changed arguments."""
    plain = kind.__init__  # type: ignore[misc]

    @functools.wraps(plain)
    def made(self: Any, *args: Any, **named: Any) -> None:
        plain(self, *change(args, named), **named)

    kind.__init__ = made  # type: ignore[misc]
    try:
        yield
    finally:
        kind.__init__ = plain  # type: ignore[misc]


def _fused(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    if not named.get("foreach"):
        named.setdefault("fused", True)
    return args


def _loader_of(
    changes: Changes,
) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """Positional arguments of DataLoader: dataset, batch_size, shuffle, sampler, ..."""

    def change(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        given = list(args)
        if given:
            named["dataset"] = given.pop(0)
        if given:
            named["batch_size"] = given.pop(0)
        if given:
            named["shuffle"] = given.pop(0)
        if given:
            raise TypeError("a DataLoader with more positional arguments is left as it is")
        if isinstance(named["dataset"], IterableDataset):
            return ()
        if changes.one_sample:
            named["dataset"] = _OneSample(named["dataset"])
        if changes.workers is not None:
            named["num_workers"] = changes.workers
            named.setdefault("persistent_workers", changes.workers > 0)
        if changes.batch is not None and named.get("batch_sampler") is None:
            named["batch_size"] = max(1, int((named.get("batch_size") or 1) * changes.batch))
        return ()

    return change
