"""torch.compile without what it measures for its own log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock


@contextlib.contextmanager
def guards_not_timed() -> Iterator[None]:
    """In here graphs are made in less time, and are the same.

    How long the guards of each new one take is measured with a cache that is flushed before, and
    then written to a log that nobody reads.
    """
    with mock.patch("torch._dynamo.guards.profile_guard_manager", _no_time):
        yield


def _no_time(*given: object) -> float:
    return 0.0
