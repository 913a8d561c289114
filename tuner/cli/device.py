"""The one device of a process: chosen, the only one it sees, and waited for."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.cli.options import Cpu, DataDir, OneGpu
from tuner.cli.output import note
from tuner.config import Precision
from tuner.errors import UsageError
from tuner.files.environment import guard_compiler_cache

ONE_DEVICE = "a worker owns one device: give either --gpu INDEX (or --gpu free) or --cpu"

FREE_CORES = "free:"

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.devices.lock import GpuAssignment, Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDeviceOptions:
    """The options of a command that trains on one device, in its own process."""

    data_dir: DataDir = None
    gpu: OneGpu = None
    cpu: Cpu = False


def chosen_gpu(*, gpu: int | None, cpu: bool) -> int | None:
    """The index of the one GPU: the first where nobody said another; None for the CPU."""
    from tuner.devices import list_gpus

    if cpu and gpu is not None:
        raise UsageError("--cpu and --gpu exclude each other; choose one")
    if cpu or gpu is not None:
        return gpu
    if list_gpus(os.environ):
        return 0
    note("no GPU is visible: running on the CPU (say --cpu to silence this)")
    return None


def chosen_device(*, gpu: int | None, cpu: bool) -> Gpu | CpuCores:
    """The one device that this process sees from now on: to be chosen before torch is imported."""
    gpu = chosen_gpu(gpu=gpu, cpu=cpu)
    return own_device(gpu=gpu, cpu=gpu is None, cores=None)


def own_device(
    *, gpu: int | None, cpu: bool, cores: str | None, patience_s: float = 0.0
) -> Gpu | CpuCores:
    """Make this process see its device only. To be called before torch is imported.

    Cores that are to be free are waited for, `patience_s` at most.
    """
    from tuner.devices import CpuCores, list_gpus, pick_gpus
    from tuner.devices.cpu import available_cores

    if cpu == (gpu is not None):
        raise UsageError(ONE_DEVICE)
    if gpu is not None:
        (picked,) = pick_gpus(str(gpu), list_gpus(os.environ), flag="--gpu")
        return own_gpu(picked)
    available = available_cores()
    if cores is not None and cores.startswith(FREE_CORES):
        wanted = _free_cores(cores, available, patience_s)
    else:
        wanted = _listed_cores(cores, available)
    if missing := set(wanted) - set(available):
        raise UsageError(
            f"--cores: there is no core {min(missing)}; there are {', '.join(map(str, available))}"
        )
    os.sched_setaffinity(0, wanted)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["OMP_NUM_THREADS"] = str(len(wanted))
    guard_compiler_cache(os.environ)
    return CpuCores(wanted)


def _listed_cores(cores: str | None, available: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(core) for core in cores.split(",")} if cores else available))
    except ValueError:
        raise UsageError(
            f"--cores: {cores!r} is no list of cores; expected e.g. 0,1, or free:2"
        ) from None


def _free_cores(cores: str, available: Sequence[int], patience_s: float) -> tuple[int, ...]:
    """So many that no other worker here has, kept as long as this process lives."""
    from tuner.devices.lock import assign_free_cores, once_free

    count = cores.removeprefix(FREE_CORES)
    if not count.isdecimal() or not 1 <= int(count) <= len(available):
        raise UsageError(
            f"--cores: {cores!r}: expected free:N, N from 1 to the {len(available)} cores here"
        )
    assign = functools.partial(assign_free_cores, int(count), available)
    return tuple(once_free(assign, patience_s=patience_s))


def refuse_tf32(precision: Precision, device: Gpu | CpuCores) -> None:
    """Raises UsageError where the device has no such arithmetic."""
    from tuner.devices import Gpu

    if precision is Precision.TF32 and not isinstance(device, Gpu):
        raise UsageError("--precision tf32 is an arithmetic of CUDA GPUs; on the CPU choose fp32")


def own_gpu(gpu: Gpu) -> Gpu:
    """Make this process see this GPU only. To be called before torch is imported."""
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    guard_compiler_cache(os.environ)
    return gpu


def assignment_at(wanted: str, *, patience_s: float = 0.0) -> GpuAssignment:
    """The GPU that `--gpu` names, for a worker: an index, or several for one trial together, or
    `free` for one without a worker, which is waited for, `patience_s` at most.

    Raises:
        UsageError: neither of the two, or a GPU that is not there.
        TunerError: none is free.
    """
    from tuner.devices import Gpu, list_gpus, pick_gpus
    from tuner.devices.lock import assign_beside, assign_free, once_free

    gpus = list_gpus(os.environ)
    if wanted == "free":
        if not gpus:
            raise UsageError(
                "--gpu free: no GPU is visible here; run with --cpu, or check the driver (tuner "
                "doctor)"
            )
        return once_free(functools.partial(assign_free, gpus), patience_s=patience_s)
    if not wanted.replace(",", "").isdecimal():
        raise UsageError(f"--gpu: {wanted!r} is neither the index of a GPU nor 'free'")
    picked = pick_gpus(wanted, gpus, flag="--gpu")
    first, *_ = [assign_beside(gpu) for gpu in picked]  # all of them for this process's life
    return dataclasses.replace(first, gpu=Gpu.together(picked))


def alone_on(device: Gpu | CpuCores) -> AbstractContextManager[bool]:
    """The device for this process alone; says on the terminal for whom it waits meanwhile."""
    from tuner.devices import exclusive

    def waiting(holder: Holder | None) -> None:
        note(f"waiting for {device.label}: {holder or 'something else is being timed there'}")

    return exclusive(device.lock_names, waiting=waiting)
