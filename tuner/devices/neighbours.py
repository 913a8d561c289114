"""Which of the processes on a GPU are foreign:
neither this one, nor a tuner worker that waits for its turn.

NVML numbers processes as the host does. In a container with process numbers of its own this process
does not find itself in the list: then one process that was there before and after is taken for it,
and the count of the others is right all the same. A program that trains for it is not found there
either: as many that came meanwhile are taken for its processes as have CUDA open. Other containers'
workers cannot be told from foreign processes there; give every GPU to one container.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tuner.devices.common_files import CommonFolderError, common_folder, read_common, write_common

ENTRY_BYTES = 64
MPS_SERVER = "nvidia-cuda-mps-server"
"""Owns a context wherever clients run under MPS,
and computes nothing itself; its clients are listed too."""
CUDA_DEVICE = "/dev/nvidia-uvm"
"""What a process opens to use CUDA; one that only asks NVML does not."""


def foreign_processes(
    before: Collection[int],
    after: Collection[int],
    *,
    own: int | None = None,
    harmless: Callable[[int], bool] = lambda _pid: False,
    on_gpu: bool = True,
    program: Collection[int] = (),
    program_on_gpu: int = 0,
) -> list[int]:
    """The processes of others among those on the GPU before and after a timed part.

    Args:
        before: process ids as NVML lists them.
        after: the same, later.
        own: this process's id.
        harmless: whether a process is known to leave the GPU alone meanwhile.
        on_gpu: whether this process is on the GPU at all.
        program: the processes of a program that trains for this one, as they are numbered here.
        program_on_gpu: how many of these use CUDA.
    """
    own = os.getpid() if own is None else own
    there = {*before, *after}
    unnamed = sorted({*before} & {*after})[:1] if on_gpu else []
    mine = {own} if own in there else set(unnamed)
    trained = there & {*program}
    mine |= trained or set(sorted({*after} - {*before})[:program_on_gpu])
    return sorted(pid for pid in there - mine if not harmless(pid))


def cuda_users(pids: Collection[int]) -> int:
    """How many of these processes, which are this user's, have CUDA open."""
    return sum(map(_uses_cuda, pids))


def _uses_cuda(pid: int) -> bool:
    with contextlib.suppress(OSError):  # it has ended
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                if str(each.readlink()) == CUDA_DEVICE:
                    return True
    return False


@contextmanager
def signed_in(folder: Path) -> Iterator[None]:
    """While inside, this process is known in the lock folder as one that leaves devices alone until
    it holds them.
    """
    entry = f"worker-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        # Where it cannot, it may be taken for a stranger: a timing too many is run again.
        with contextlib.suppress(OSError, CommonFolderError):
            there = stack.enter_context(common_folder(folder, make=True))
            write_common(there, entry, birth(os.getpid()).encode())
            stack.callback(_sign_out, there, entry)
        yield


def _sign_out(folder: int, entry: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(entry, dir_fd=folder)


def is_harmless(pid: int, folder: Path) -> bool:
    """True for the server of MPS, and for a living worker that has signed in at the lock folder."""
    try:
        if psutil.Process(pid).name() == MPS_SERVER:
            return True
        with common_folder(folder, make=False) as there:
            entry = read_common(there, f"worker-{pid}", at_most=ENTRY_BYTES)
        return entry == birth(pid).encode()
    except (OSError, CommonFolderError, psutil.Error):
        return False


def birth(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number."""
    return f"{psutil.Process(pid).create_time():.2f}"
