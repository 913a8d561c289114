"""One timed training at a time on a device, across all studies and launches of this host."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from tuner.devices.holder import Holder, holder_of, noted, stopped_among

POLL_S = 0.5
_log = logging.getLogger(__name__)


def lock_folder() -> Path:
    """Where the lock files are: one folder for all users of the host, since they share its devices."""
    return Path(tempfile.gettempdir()) / "tuner-device-locks"


def open_folder() -> Path:
    """The same folder, made where it is missing, and open to all users."""
    folder = lock_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # another user's folder is already open to all
        folder.chmod(0o1777)
    return folder


def stopped_holder(names: Sequence[str]) -> Holder | None:
    """Who holds one of the devices `names` and is stopped: nobody else will ever get it unless somebody sees to it."""
    return stopped_among([_note(lock_folder(), name) for name in names])


def log_waiting(holder: Holder | None) -> None:
    """What a worker says of whom it waits for: into its log."""
    level = logging.WARNING if holder is not None and holder.is_stopped else logging.INFO
    _log.log(level, "waiting for the device: %s", holder or "another process has it")


@contextmanager
def exclusive(
    names: Sequence[str],
    *,
    give_up: Callable[[], bool] = lambda: False,
    waiting: Callable[[Holder | None], None] = log_waiting,
) -> Iterator[bool]:
    """Hold the devices `names`; waits for whoever has them. Yields False when `give_up` turned true meanwhile.

    `waiting` is told for whom, as far as that is known: once, and again when another has it or the holder was stopped.
    The kernel releases the locks of a process that dies. Locks are taken in sorted order, so two workers whose sets
    of cores overlap cannot wait for each other in a circle.
    """
    folder = open_folder()
    with contextlib.ExitStack() as held:
        for name in sorted(names):
            lock = filelock.FileLock(folder / f"{name}.lock", mode=0o666)
            told = ""
            while True:
                try:
                    lock.acquire(timeout=POLL_S)
                    break
                except filelock.Timeout:
                    if give_up():
                        yield False
                        return
                    holder = holder_of(_note(folder, name))
                    if told != (told := str(holder)):
                        waiting(holder)
            held.callback(lock.release)
            held.enter_context(noted(_note(folder, name)))
        yield True


def _note(folder: Path, name: str) -> Path:
    return folder / f"{name}.holder"
