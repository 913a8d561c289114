"""What code of the user's prints is not part of a JSON document."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

STDOUT, STDERR = 1, 2


@contextlib.contextmanager
def printed_to_stderr(*, wanted: bool) -> Iterator[None]:
    """In here all that is printed goes to stderr, also by a library in C or by a program that is
    started.
    """
    if not wanted:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one of them may be closed
            kept = os.dup(STDOUT)
            stack.callback(os.close, kept)
            os.dup2(STDERR, STDOUT)
            stack.callback(os.dup2, kept, STDOUT)
        yield
