"""A device's context that is lost: only a fresh process can go on, and not for ever.

Where there is no supervisor to start one, a command becomes it: the same command once more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.devices.gpu_assignment import GpuAssignment

MAX_RESTARTS = 5
"""A device whose workers end this often without a result of theirs in between gets no other one,
however well those on other devices do. Where a launch waits twice as long each time, that is a
quarter of a minute: longer than a database that restarts keeps every trial from finishing."""

MARK = "--failures"
"""The first of the words that are added to a fresh process's command line; all after it are
replaced by the next."""


class ContextLostError(Exception):
    """The device's context is unusable after a failure: only a fresh process can go on.

    `results` is how many this process had that count, without the failure itself: signs that its
    device works.
    """

    def __init__(self, reason: str, *, results: int = 0) -> None:
        super().__init__(reason)
        self.results = results

    def failures(self, before: int) -> int:
        """How many processes in a row lost the device and had
        no result beside that, with this one and `before`.
        """
        return 1 if self.results else before + 1


def go_on_afresh(
    lost: ContextLostError,
    device: Gpu | CpuCores,
    assignment: GpuAssignment | None,
    *,
    failures: int,
) -> NoReturn:
    """Become the same command in a fresh process, on the same GPU.

    A device on which so many processes in a row had no result, but that they lost it, is judged as
    a supervisor judges it: each would take another trial, and fail it. `failures` is how many there
    were before this process.

    Raises:
        TunerError: the device is given up.
    """
    failures = lost.failures(failures)
    if failures >= MAX_RESTARTS:
        raise TunerError(
            f"{device.label} is left alone: {failures} processes in a row lost it with their first "
            f"trial, the last to '{lost}'; check the device, and start the worker again"
        )
    more = [MARK, str(failures)]
    if assignment is not None:  # it keeps its GPU, the only one that it sees by now
        more += ["--gpu", "0"]
        if assignment.descriptor is not None:
            assignment.keep()
            more += ["--gpu-assignment", str(assignment.descriptor)]
    become(as_given(sys.argv[1:], MARK), more)


def become(words: Sequence[str], more: Sequence[str]) -> NoReturn:
    """Be this program anew, with these words
    on its command line and `more` of our own behind them.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    program = [sys.executable, "-m", "tuner", *words, *more]
    os.execv(sys.executable, program)  # noqa: S606 - this very command again


def as_given(words: Sequence[str], mark: str) -> Sequence[str]:
    """A command line as the person gave it: without what was added from the word `mark` on."""
    return words[: words.index(mark)] if mark in words else words
