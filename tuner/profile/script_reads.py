"""Which lines of a script read a tensor's value: on a GPU the host waits for it there."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tuner.profile.what_if import READS, of_torch

SKIPPED = 3
"""Reads of a line in the first steps are not looked at: what is read once is no fault."""

MOST_STEPS_BETWEEN = 1.5
"""A line is read `each step` where so many steps lie between two reads, at most."""


class Reads:
    """Counts them."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, int, str]] = Counter()
        self._on_gpu = torch.cuda.is_available()

    @staticmethod
    @contextmanager
    def counted() -> Iterator[Reads]:
        """In here each read is counted, by its line."""
        reads = Reads()
        plain = {name: getattr(Tensor, name) for name in READS}
        for name, method in plain.items():
            setattr(Tensor, name, reads.counting(name, method))
        try:
            yield reads
        finally:
            for name, method in plain.items():
                setattr(Tensor, name, method)

    def counting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with a count of who calls it."""

        def read(tensor: Tensor, *args: Any, **named: Any) -> Any:
            if tensor.is_cuda or not self._on_gpu:
                frame = sys._getframe(1)  # noqa: SLF001 - whoever calls is what it is about
                file = frame.f_code.co_filename
                if not of_torch(file) and "/tuner/" not in file:
                    self._seen[file, frame.f_lineno, name] += 1
            return method(tensor, *args, **named)

        return read

    def each_step(self, steps: int) -> list[str]:
        """`train.py, line 30: .item()` of each line that reads in about every step."""
        return [
            f"{Path(file).name}, line {line}: {_called(name)}"
            for (file, line, name), count in self._seen.items()
            if count >= SKIPPED and steps / count <= MOST_STEPS_BETWEEN
        ]


def _called(name: str) -> str:
    if name.startswith("__"):
        return f"a tensor as {name.strip('_')}"
    return f".{name}()"
