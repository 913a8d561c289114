"""Which cores of this host have a worker, so that workers that others placed share none.

Engines that place processes count cores, and few of them bind to them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.assignment_files import NoneFreeError, choosing, taken_alone
from tuner.devices.cpu import CpuCores


@dataclass(frozen=True, slots=True)
class CoreAssignment:
    """A worker's cores, as long as the descriptors are open."""

    cores: CpuCores
    descriptors: tuple[int, ...]

    def leave(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def assign_free_cores(count: int, available: Sequence[int]) -> CoreAssignment:
    """The first `count` of the cores `available` that have no worker.

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
    assignment = CoreAssignment(CpuCores(tuple(found)), tuple(found.values()))
    if len(found) == count:
        return assignment
    assignment.leave()
    raise NoneFreeError(
        f"--cores free:{count}: {len(found)} of the {len(available)} cores here have no worker; "
        "name some with --cores 0,1 to take turns with others"
    )
