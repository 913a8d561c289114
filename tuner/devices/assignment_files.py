"""Files that say who has a device: shared locks, which the kernel releases with the process.

Who wants a device for itself must get the exclusive lock first.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tuner.devices.common_files import open_common
from tuner.devices.lock import open_folder
from tuner.errors import TunerError

LOOK_S = 0.5
Assigned = TypeVar("Assigned")


class NoneFreeError(TunerError):
    """Each device has a worker (exit code 1)."""


def once_free(assign: Callable[[], Assigned], *, patience_s: float) -> Assigned:
    """What `assign` gives. While none is free, whoever has it may be about to end: that is waited
    for.

    Raises:
        NoneFreeError: none was in all that time.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            return assign()
        except NoneFreeError:
            if time.monotonic() >= until:
                raise
            time.sleep(LOOK_S)


def taken_beside(device: str) -> int:
    """A descriptor that has the device `device`, whoever has it too.

    Raises:
        DeviceLockError: the lock folder is none to rely on.
        OSError: the file in it is none that can be opened.
    """
    descriptor = _open(device)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def taken_alone(device: str) -> int | None:
    """The same where nobody has it; else None. To be called by who is `choosing`."""
    descriptor = _open(device)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def choosing() -> Iterator[None]:
    """One process at a time: no two may find the same device free,
    or each other's first look for a worker.
    """
    with open_folder() as folder:
        descriptor = open_common(folder, "choosing-a-seat.lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _open(device: str) -> int:
    with open_folder() as folder:
        return open_common(folder, f"{device}.seat", os.O_RDWR)
