"""Which of the processes on a GPU are foreign: neither this one, nor a tuner worker that waits for its turn.

NVML numbers processes as the host does. In a container with process numbers of its own this process does not find
itself in the list: then one process that was there before and after is taken for it, and the count of the others is
right all the same. Other containers' workers cannot be told from foreign processes there; give every GPU to one
container.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MPS_SERVER = "nvidia-cuda-mps-server"
"""Owns a context wherever clients run under MPS, and computes nothing itself; its clients are listed too."""


def foreign_processes(
    before: Collection[int],
    after: Collection[int],
    *,
    own: int | None = None,
    harmless: Callable[[int], bool] = lambda _pid: False,
) -> list[int]:
    """The processes of others among those on the GPU before and after a timed part.

    Args:
        before: process ids as NVML lists them.
        after: the same, later.
        own: this process's id.
        harmless: whether a process is known to leave the GPU alone meanwhile.
    """
    own = os.getpid() if own is None else own
    there = {*before, *after}
    mine = {own} if own in there else set(sorted({*before} & {*after})[:1])
    return sorted(pid for pid in there - mine if not harmless(pid))


@contextmanager
def signed_in(folder: Path) -> Iterator[None]:
    """While inside, this process is known in the lock folder as one that leaves devices alone until it holds them."""
    entry = folder / f"worker-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entry.write_text(birth(os.getpid()), encoding="ascii")
    except OSError:  # then it may be taken for a stranger: a timing too many is run again
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            entry.unlink()


def is_harmless(pid: int, folder: Path) -> bool:
    """True for the server of MPS, and for a living worker that has signed in at the lock folder."""
    try:
        if psutil.Process(pid).name() == MPS_SERVER:
            return True
        return (folder / f"worker-{pid}").read_text(encoding="ascii") == birth(pid)
    except (OSError, ValueError, psutil.Error):
        return False


def birth(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number."""
    return f"{psutil.Process(pid).create_time():.2f}"
