"""Which GPUs of this host have a worker, so that another worker can take one that has none.

A worker keeps its assignment as long as it lives, whether it trains or not; a device's lock, which
is for one training, says nothing about that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.assignment_files import NoneFreeError, choosing, taken_alone, taken_beside
from tuner.devices.gpu import Gpu
from tuner.devices.lock import DeviceLockError


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
