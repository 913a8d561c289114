"""The entry point, which imports nothing but what runs: a signal may come before that is there."""

from __future__ import annotations

import signal
import sys

from tuner.cli.sigterm import INTERRUPTED, TERMINATED, WORDS, heed_sigterm

TYPE_CHECKING = False  # as type checkers take it
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 misuse,
    1 failure, 130 or 143 after an interruption.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    heeds = heed_sigterm()
    try:
        sys.exit(_run(given))
    finally:
        if heeds:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
