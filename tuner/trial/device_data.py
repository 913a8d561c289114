"""A worker's data on its device."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu


def on_device(
    prepared: Mapping[str, PreparedData], device: Gpu | CpuCores
) -> dict[str, DeviceData]:
    """All of it, by data hash; a CPU's trainings take as many threads as they have cores."""
    if isinstance(device, CpuCores):
        torch.set_num_threads(len(device.cores))
    target = "cpu" if isinstance(device, CpuCores) else "cuda:0"
    return {name: to_device(each, target) for name, each in prepared.items()}
