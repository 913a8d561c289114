"""About how long an epoch of a network takes here: from a few steps, not from an epoch."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceSplit, to_device
from tuner.devices.cpu import CpuCores, available_cores
from tuner.devices.watch import Watch
from tuner.training.one_step import build_within_memory
from tuner.training.step import Step

PATIENCE_S = 3.0
LEAST_STEPS, MOST_STEPS = 3, 20
WARM_UP = 2
"""Steps that are not counted: the first ones wait for memory and for kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds for the training steps of an epoch and its validation, from `measured` steps of
    PyTorch's plain operations on `device`.
    """

    seconds: float
    steps: int
    measured: int
    device: str
    disturbed: str = ""
    """Why it may be much less; empty where nothing was seen, and on a GPU."""


def pace_of(
    architecture: Architecture,
    hyperparameters: Hyperparameters,
    training: TrainingSettings,
    prepared: PreparedData,
) -> Pace:
    """Train some steps, and scale the median up to an epoch.

    Raises:
        TunerError: the network does not fit into memory.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_within_memory(architecture, hyperparameters, prepared.shapes).to(device)
    data = to_device(prepared, device)
    config = RunConfig(
        architecture=architecture, hyperparameters=hyperparameters, training=training, seed=0
    )
    step = Step(config, data, model)
    watch = Watch(CpuCores(available_cores())) if device.type == "cpu" else None
    began = time.perf_counter()
    took: list[float] = []
    model.train()
    batch = _windows(data.train, hyperparameters.batch_size)
    while len(took) < MOST_STEPS + WARM_UP and (
        len(took) < WARM_UP + LEAST_STEPS or time.perf_counter() - began < PATIENCE_S
    ):
        took.append(_seconds(lambda: step.train(step.gathered(data.train, batch)), device))
    model.eval()
    batch = _windows(data.val, hyperparameters.batch_size)
    with torch.no_grad():
        looks = [_seconds(lambda: step.loss(data.val.gather(batch)), device) for _ in range(3)]
    steps, checks = (
        -(-len(split) // hyperparameters.batch_size) for split in (data.train, data.val)
    )
    counted = took[WARM_UP:]
    return Pace(
        seconds=steps * statistics.median(counted) + checks * min(looks),
        steps=steps,
        measured=len(counted),
        device=_name(device),
        disturbed="" if watch is None else watch.finish().why,
    )


def _windows(split: DeviceSplit, batch_size: int) -> torch.Tensor:
    return torch.arange(min(batch_size, len(split)), device=split.starts.device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"the CPU, {threads} {'thread' if threads == 1 else 'threads'}"
