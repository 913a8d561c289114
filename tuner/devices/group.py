"""Devices of one host that train a trial together, as one: locked, leased and timed together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tuner.devices.cpu import CpuCores
from tuner.devices.gpu import Gpu
from tuner.errors import UsageError

KEY = "gpus_per_trial"


def devices_of_all(numbers: Mapping[str, int]) -> int:
    """The number of devices that the trials of all these studies take, by the studies' names.

    Raises:
        UsageError: they are not the same, and a worker has its devices for all of them.
    """
    first, *others = numbers.items()
    for name, number in others:
        if number != first[1]:
            raise UsageError(
                f"{KEY} is {first[1]} in {first[0]!r} and {number} in {name!r}: a worker has as "
                "many devices for all of its trials; launch the studies one by one"
            )
    return first[1]


def grouped(devices: Sequence[Gpu | CpuCores], number: int) -> Sequence[Gpu | CpuCores]:
    """One device after the other in groups of this number; a remainder stays idle.

    Raises:
        UsageError: there are fewer devices.
    """
    if all(len(each.devices) == number for each in devices):
        return devices
    if len(devices) < number:
        on_cpu = isinstance(devices[0], CpuCores)
        there = f"there {'is' if len(devices) == 1 else 'are'} {len(devices)}"
        remedy = f"--workers {number} shares out the cores" if on_cpu else "name more with --gpus"
        raise UsageError(
            f"{KEY} {number}: a trial takes {number} {'sets of cores' if on_cpu else 'GPUs'} at a "
            f"time, and {there}; {remedy}, or begin another study with a smaller number"
        )
    firsts = range(0, len(devices) - number + 1, number)
    return [_together(devices[first : first + number]) for first in firsts]


def refuse_placed(engine: str, number: int) -> None:
    """Raises UsageError where a trial takes several devices: an engine gives each worker one."""
    if number > 1:
        raise UsageError(
            f"{KEY} {number}: {engine} gives each worker one device; launch on the host that has "
            "them, without --on, or start workers there with tuner worker --gpu 0,1"
        )


def _together(devices: Sequence[Gpu | CpuCores]) -> Gpu | CpuCores:
    gpus = [each for each in devices if isinstance(each, Gpu)]
    if gpus:
        return Gpu.together(gpus)
    cores = [each for each in devices if isinstance(each, CpuCores)]
    return CpuCores(tuple(core for each in cores for core in each.cores), parts=len(cores))


def as_group(device: Gpu | CpuCores, number: int) -> Gpu | CpuCores:
    """A worker's device as so many for each of its trials: its cores are parted among them.

    Raises:
        UsageError: it cannot be.
    """
    if isinstance(device, CpuCores) and len(device.cores) % number == 0:
        return dataclasses.replace(device, parts=number)
    if len(device.devices) == number:
        return device
    if isinstance(device, CpuCores):
        raise UsageError(
            f"{KEY} {number}: a trial takes {number} sets of as many cores, and the "
            f"{len(device.cores)} of this worker cannot be shared out so; name others with --cores"
        )
    gpus = f"{number} GPU{'s' if number > 1 else ''}"
    raise UsageError(
        f"{KEY} {number}: a trial takes {gpus} at a time, and this worker has "
        f"{len(device.devices)}; name as many with --gpu 0,1"
    )
