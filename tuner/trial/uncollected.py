"""Imports of torch that nobody searches for garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """In here no garbage is looked for, and what is here at the end is never looked through again.

    With torch come a million objects that stay. Python looks through all of them each time they
    have become a quarter more, which is a fifth of a worker's start, and every now and then in the
    middle of a training, for a quarter of a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
