"""A profile that is shown as it is measured, and kept where it is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.errors import TunerError, exit_code_of

if TYPE_CHECKING:
    from tuner.profile.profile_records import Profile


class _TimeIsUp(KeyboardInterrupt):
    """What Ctrl-C does, at a time that was set: what catches a training's failures lets it pass."""


@dataclass(slots=True)
class Shown:
    """What is measured so far, and which of its tables the terminal has."""

    to_terminal: bool
    profile: Profile | None = None
    printed: set[str] = field(default_factory=set)
    exit_code: int = 0

    def tell(self, now: Profile) -> None:
        """Of more that was measured."""
        from tuner.display.terminal import make_console
        from tuner.profile.terminal_report import print_measured

        self.profile = now
        if self.to_terminal:
            print_measured(now, make_console(), self.printed)

    @contextmanager
    def until_stopped(self, limit_s: float | None) -> Iterator[None]:
        """What Ctrl-C, SIGTERM, or the end of so many seconds stops is left, and what there is by
        then is kept.

        Raises:
            TunerError: time was up before there was anything.
            KeyboardInterrupt: as much for a signal.
        """
        try:
            with _at_most(limit_s):
                yield
        except _TimeIsUp:
            if self.profile is None:
                raise TunerError(
                    f"--timeout: {limit_s:.4g} s were over before anything was measured; give it "
                    "longer, or measure fewer --steps"
                ) from None
        except KeyboardInterrupt as stop:
            if self.profile is None:
                raise
            self.exit_code = exit_code_of(stop)


@contextmanager
def _at_most(limit_s: float | None) -> Iterator[None]:
    def end(*_: object) -> None:
        raise _TimeIsUp

    if limit_s is None:
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
