"""CPU cores as devices: a worker owns a set of cores, held by affinity."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.devices.gpu import of_several
from tuner.devices.host import physical_host
from tuner.errors import UsageError


@dataclass(frozen=True, slots=True)
class CpuCores:
    """A set of cores of this machine that a worker owns; of several parts, devices for one trial
    together.
    """

    cores: tuple[int, ...]
    parts: int = 1

    @property
    def devices(self) -> tuple[CpuCores, ...]:
        """The parts, each of as many cores."""
        each = len(self.cores) // self.parts
        return tuple(CpuCores(self.cores[i * each : (i + 1) * each]) for i in range(self.parts))

    @property
    def uuid(self) -> str:
        return f"cpu-{platform.node()}-{'.'.join(map(str, self.cores))}"

    @property
    def model(self) -> str:
        """Times compare only between the same processor and the same number of cores."""
        cores = len(self.cores) // self.parts
        return of_several(f"{processor_name()}, {cores} core{'s' if cores > 1 else ''}", self.parts)

    @property
    def label(self) -> str:
        return f"CPU core{'s' if len(self.cores) > 1 else ''} {','.join(map(str, self.cores))}"

    @property
    def lock_names(self) -> tuple[str, ...]:
        return tuple(f"cpu-core-{core}" for core in self.cores)

    @property
    def lease_keys(self) -> tuple[str, ...]:
        """What each core is called in the database: the same in all containers of its host."""
        host = physical_host()
        return tuple(f"cpu-{host}-core-{core}" for core in self.cores)


def processor_name() -> str:
    """The processor's model name as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def available_cores() -> tuple[int, ...]:
    """Cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def share_out_cores(workers: int, cores: Sequence[int]) -> tuple[CpuCores, ...]:
    """Split `cores` into `workers` sets of the same size
    (so that their times compare); a remainder stays idle.

    Raises:
        UsageError: more workers than cores.
    """
    each = len(cores) // workers
    if each == 0:
        there = f"{len(cores)} usable core{'s' if len(cores) != 1 else ''}"
        raise UsageError(
            f"--workers {workers}: this machine has {there}, and workers that share a core spoil "
            "each other's clock; "
            f"expected at most {len(cores)}"
        )
    return tuple(CpuCores(tuple(cores[i * each : (i + 1) * each])) for i in range(workers))
