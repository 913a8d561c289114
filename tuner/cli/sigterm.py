"""SIGTERM as the command line hears it, from its first moment: nothing else of ours is imported."""

from __future__ import annotations

import functools
import signal
import time

TYPE_CHECKING = False  # as type checkers take it
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # as in `tuner.errors`, which may be what is being imported
WORDS = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
PASSED_ON_S = 10.0
"""So late one SIGTERM may come again: a cluster, or `timeout`, tells each process, and those
between pass it on."""


def terminate(number: int, frame: FrameType | None, *, since: float = -PASSED_ON_S) -> None:
    """SIGTERM ends a command as Ctrl-C does, with a code of its own: see `tuner.errors`."""
    del frame
    now = time.monotonic()
    if now < since + PASSED_ON_S:
        return
    signal.signal(number, functools.partial(terminate, since=now))
    raise KeyboardInterrupt(TERMINATED)


def heed_sigterm() -> bool:
    """Unless somebody ignores it, or has a handler of his own."""
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
            return True
    except ValueError:  # not the main thread, which hears no signal
        pass
    return False
