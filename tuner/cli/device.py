"""The one device of a command that trains by itself, and waiting for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.cli.options import note
from tuner.cli.worker import own_device
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.devices.holder import Holder


def chosen_device(*, gpu: int | None, cpu: bool) -> Gpu | CpuCores:
    """The one device that this process sees from now on: to be chosen before torch is imported."""
    from tuner.devices import list_gpus

    if cpu and gpu is not None:
        raise UsageError("--cpu and --gpu exclude each other; choose one")
    if not cpu and gpu is None:
        if list_gpus(os.environ):
            gpu = 0
        else:
            cpu = True
            note("no GPU is visible: running on the CPU (say --cpu to silence this)")
    return own_device(gpu=gpu, cpu=cpu, cores=None)


def waiting_for(label: str) -> Callable[[Holder | None], None]:
    """Says on the terminal for whom a command waits that wants the device."""

    def waiting(holder: Holder | None) -> None:
        note(f"waiting for {label}: {holder or 'something else is being timed there'}")

    return waiting
