"""The entry point, which imports nothing but what runs: a signal may come before that is there."""

from __future__ import annotations

import functools
import signal
import sys
import time

TYPE_CHECKING = False  # as type checkers take it
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # as in `tuner.errors`, which may be what is being imported
WORDS = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
PASSED_ON_S = 10.0
"""So late one SIGTERM may come again: a cluster, or `timeout`, tells each process, and those
between pass it on."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 misuse,
    1 failure, 130 or 143 after an interruption.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    heeds = _heed_sigterm()
    try:
        sys.exit(_run(given))
    finally:
        if heeds:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def terminate(number: int, frame: FrameType | None, *, since: float = -PASSED_ON_S) -> None:
    """SIGTERM ends a command as Ctrl-C does, with a code of its own: see `tuner.errors`."""
    del frame
    now = time.monotonic()
    if now < since + PASSED_ON_S:
        return
    signal.signal(number, functools.partial(terminate, since=now))
    raise KeyboardInterrupt(TERMINATED)


def _heed_sigterm() -> bool:
    """Unless somebody ignores it, or has a handler of his own."""
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
            return True
    except ValueError:  # not the main thread, which hears no signal
        pass
    return False


def _run(given: list[str]) -> int:
    try:
        from tuner.cli.run import run
    except KeyboardInterrupt as error:
        code = TERMINATED if TERMINATED in error.args else INTERRUPTED
        if "--json" in given and sys.stdout is not None:
            print(f'{{"error": {{"message": "{WORDS[code]}", "exit_code": {code}}}}}')  # noqa: T201 - this is the command line
        if sys.stderr is not None:
            print(f"tuner: error: {WORDS[code]}", file=sys.stderr)  # noqa: T201
        return code
    return run(given)
