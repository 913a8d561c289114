"""Which GPUs of this host have a worker, so that another worker can take one that has none.

A worker keeps its assignment as long as it lives, whether it trains or not; a device's lock, which
is for one training, says nothing about that. Assignments are shared locks on files in the lock
folder, which the kernel releases with the process; who wants a GPU for itself must get the
exclusive one first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tuner.devices.common_files import open_common
from tuner.devices.gpu import Gpu
from tuner.devices.lock import DeviceLockError, open_folder
from tuner.errors import TunerError


@dataclass(frozen=True, slots=True)
class GpuAssignment:
    """A worker's GPU, as long as the descriptor is open. None where the lock folder
    cannot be written.
    """

    gpu: Gpu
    descriptor: int | None

    def keep(self) -> None:
        """Hold it also while this process becomes another program."""
        if self.descriptor is not None:
            os.set_inheritable(self.descriptor, True)

    def leave(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def kept_assignment(gpu: Gpu, descriptor: int) -> GpuAssignment:
    """The assignment that this process kept when it was another program.

    Raises:
        OSError: there is no such descriptor.
    """
    os.set_inheritable(descriptor, False)
    return GpuAssignment(gpu, descriptor)


def assign_beside(gpu: Gpu) -> GpuAssignment:
    """This very GPU, whichever workers have it too: their trainings take turns."""
    with contextlib.suppress(OSError, DeviceLockError):  # who takes the device will be told
        descriptor = _open(gpu)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return GpuAssignment(gpu, descriptor)
    return GpuAssignment(gpu, None)


def assign_free(gpus: Sequence[Gpu]) -> GpuAssignment:
    """The first of `gpus` that has no worker.

    Raises:
        TunerError: each has one.
        DeviceLockError: the lock folder is none to rely on.
        OSError: a file in it is none that can be opened.
    """
    with _choosing():
        for gpu in gpus:
            descriptor = _open(gpu)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return GpuAssignment(gpu, descriptor)
    taken = (
        "the GPU here has a worker"
        if len(gpus) == 1
        else f"each of the {len(gpus)} GPUs here has a worker"
    )
    raise TunerError(f"--gpu free: {taken}; name one with --gpu INDEX to take turns with it")


def _open(gpu: Gpu) -> int:
    with open_folder() as folder:
        return open_common(folder, f"{gpu.uuid}.seat", os.O_RDWR)


@contextmanager
def _choosing() -> Iterator[None]:
    """One process at a time: no two may find the same GPU free,
    or each other's first look for a worker.
    """
    with open_folder() as folder:
        descriptor = open_common(folder, "choosing-a-seat.lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
