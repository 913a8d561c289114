"""The entry point, which imports nothing but what runs: Ctrl-C may come before that is there."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as type checkers take it
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130  # as in `tuner.errors`, which may be what is being imported
_DOCUMENT = '{"error": {"message": "interrupted", "exit_code": 130}}'


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 2 misuse,
    1 failure, 130 or 143 after an interruption.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from tuner.cli.run import run
    except KeyboardInterrupt:
        if "--json" in given and sys.stdout is not None:
            print(_DOCUMENT)  # noqa: T201 - this is the command line
        if sys.stderr is not None:
            print("tuner: error: interrupted", file=sys.stderr)  # noqa: T201
        sys.exit(INTERRUPTED)
    sys.exit(run(given))
