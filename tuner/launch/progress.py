"""Whoever looks on while a launch works. By default nobody does: notes stand in the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tuner.study.open import OpenStudy


class Progress(Protocol):
    """What a launch tells, and when."""

    def note(self, line: str) -> None:
        """A sentence for the person who launches, as soon as it is known."""

    def watching(self, studies: Sequence[OpenStudy]) -> AbstractContextManager[Callable[[], None]]:
        """Around the workers' time. What it gives is called a few times a second."""


class Quiet:
    """Shows nothing."""

    def note(self, line: str) -> None:
        del line

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        del studies
        yield lambda: None


@dataclass(slots=True)
class Notes:
    """Passes on every line, and keeps it for the outcome."""

    progress: Progress
    lines: list[str] = field(default_factory=list)

    def note(self, line: str | None) -> None:
        """An empty line says nothing."""
        if line:
            self.lines.append(line)
            self.progress.note(line)
