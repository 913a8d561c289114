"""One timed training at a time on a device, across all studies and launches of this host."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

POLL_S = 0.5


def lock_folder() -> Path:
    """Where the lock files are: one folder for all users of the host, since they share its devices."""
    return Path(tempfile.gettempdir()) / "tuner-device-locks"


@contextmanager
def exclusive(names: Sequence[str], *, give_up: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the devices `names`; waits for whoever has them. Yields False when `give_up` turned true meanwhile.

    The kernel releases the locks of a process that dies. Locks are taken in sorted order, so two workers whose sets
    of cores overlap cannot wait for each other in a circle.
    """
    folder = lock_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user's folder is already open to all
        folder.chmod(0o1777)
    with contextlib.ExitStack() as held:
        for name in sorted(names):
            lock = filelock.FileLock(folder / f"{name}.lock", mode=0o666)
            while True:
                try:
                    lock.acquire(timeout=POLL_S)
                    break
                except filelock.Timeout:
                    if give_up():
                        yield False
                        return
            held.callback(lock.release)
        yield True
