"""The devices trials run on: found, shared out, one trial at a time on each, and watched."""

from tuner.devices.cpu import CpuCores, share_out_cores
from tuner.devices.gpu import Gpu, list_gpus, pick_gpus
from tuner.devices.lock import exclusive
from tuner.devices.watch import Carried, Observation, Watch

__all__ = [
    "Carried",
    "CpuCores",
    "Gpu",
    "Observation",
    "Watch",
    "exclusive",
    "list_gpus",
    "pick_gpus",
    "share_out_cores",
]
