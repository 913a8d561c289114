"""A command whose device's context is lost, with no supervisor to help: the same once more, in a fresh process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tuner.errors import TunerError

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.devices.seat import Seat
    from tuner.worker import ContextLostError

MARK = "--failures"
"""The first of the words that are added to a fresh process's command line; all after it are replaced by the next."""


def go_on_afresh(lost: ContextLostError, device: Gpu | CpuCores, seat: Seat | None, *, failures: int) -> NoReturn:
    """Become the same command in a fresh process, at the same seat.

    A device on which so many processes in a row had no result, but that they lost it, is judged as a supervisor judges
    it: each would take another trial, and fail it. `failures` is how many there were before this process.

    Raises:
        TunerError: the device is given up.
    """
    from tuner.worker.afresh import MAX_RESTARTS

    failures = lost.failures(failures)
    if failures >= MAX_RESTARTS:
        raise TunerError(
            f"{device.label} is left alone: {failures} processes in a row lost it with their first trial, the last to "
            f"'{lost}'; check the device, and start the worker again"
        )
    more = [MARK, str(failures)]
    if seat is not None:  # it keeps its GPU, the only one that it sees by now
        more += ["--gpu", "0"]
        if seat.descriptor is not None:
            seat.keep()
            more += ["--seat", str(seat.descriptor)]
    become(as_given(sys.argv[1:], MARK), more)


def become(words: Sequence[str], more: Sequence[str]) -> NoReturn:
    """Be this program anew, with these words on its command line and `more` of our own behind them."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "tuner", *words, *more])  # noqa: S606 - this very command again


def as_given(words: Sequence[str], mark: str) -> Sequence[str]:
    """A command line as the person gave it: without what was added from the word `mark` on."""
    return words[: words.index(mark)] if mark in words else words
