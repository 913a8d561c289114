"""How many CUDA kernels a piece of work launches, those inside a replayed graph counted too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_NOT_KERNELS = ("Memcpy", "Memset")


def is_kernel(event: Any) -> bool:
    """Whether a profiler's event is a kernel: on the device, and no copy, fill or annotation."""
    on_device = event.device_type == DeviceType.CUDA
    return on_device and not event.is_user_annotation and not event.name.startswith(_NOT_KERNELS)


class KernelCount:
    """Counts from `start` to `stop`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._profile = profile(activities=[ProfilerActivity.CUDA])

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._profile.start()

    def stop(self) -> int:
        torch.cuda.synchronize(self._device)
        self._profile.stop()
        events = self._profile.events()  # type: ignore[no-untyped-call]
        return sum(is_kernel(event) for event in events)


def count_kernels(device: torch.device, work: Callable[[], object]) -> int:
    """Kernels that `work` launches on the device."""
    counting = KernelCount(device)
    counting.start()
    work()
    return counting.stop()


def per_step(count: Callable[[int], int], steps: int) -> int:
    """Kernels of one step, from runs of several: what an epoch's beginning adds cancels out.

    Args:
        count: the kernels of a run of so many steps.
        steps: at most so many, all of the same kind; where there is but one, its run's own extras
            are in the figure.
    """
    if steps == 1:
        return count(1)
    more = min(steps, 3)
    return round((count(more) - count(1)) / (more - 1))
