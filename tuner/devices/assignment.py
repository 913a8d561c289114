"""Files that say who has a device: shared locks, which the kernel releases with the process.

Who wants a device for itself must get the exclusive lock first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tuner.devices.common_files import open_common
from tuner.devices.gpu import Gpu
from tuner.devices.lock import DeviceLockError, open_folder
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


# Which cores of this host have a worker, so that workers that others placed share none.


def assign_free_cores(count: int, available: Sequence[int]) -> dict[int, int]:
    """The first `count` of the cores `available` that have no worker, each with the descriptor that
    holds it as long as it is open.

    Raises:
        NoneFreeError: so many are not free; none is taken then.
        DeviceLockError: the lock folder is none to rely on.
        OSError: a file in it is none that can be opened.
    """
    found: dict[int, int] = {}
    with choosing():
        for core in available:
            if len(found) == count:
                break
            descriptor = taken_alone(f"cpu-core-{core}")
            if descriptor is not None:
                found[core] = descriptor
    if len(found) == count:
        return found
    for descriptor in found.values():
        os.close(descriptor)
    raise NoneFreeError(
        f"--cores free:{count}: {len(found)} of the {len(available)} cores here have no worker; "
        "name some with --cores 0,1 to take turns with others"
    )


# Which GPUs of this host have a worker, so that another worker can take one that has none.


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
        return GpuAssignment(gpu, taken_beside(gpu.uuid))
    return GpuAssignment(gpu, None)


def assign_free(gpus: Sequence[Gpu]) -> GpuAssignment:
    """The first of `gpus` that has no worker.

    Raises:
        NoneFreeError: each has one.
        DeviceLockError: the lock folder is none to rely on.
        OSError: a file in it is none that can be opened.
    """
    with choosing():
        for gpu in gpus:
            descriptor = taken_alone(gpu.uuid)
            if descriptor is not None:
                return GpuAssignment(gpu, descriptor)
    taken = (
        "the GPU here has a worker"
        if len(gpus) == 1
        else f"each of the {len(gpus)} GPUs here has a worker"
    )
    raise NoneFreeError(f"--gpu free: {taken}; name one with --gpu INDEX to take turns with it")
