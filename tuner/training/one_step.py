"""One real step of a network's training, and a look at some more: what it means that a variant
works, before hours are spent on it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from tuner.config import Architecture, Hyperparameters, ModelShapes, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, DeviceSplit, to_device
from tuner.devices.cpu import CpuCores, available_cores
from tuner.devices.host import free_memory_bytes
from tuner.devices.watch import Watch
from tuner.errors import TunerError, UsageError
from tuner.models.fault import FAULTS, on_one_line, out_of_memory
from tuner.models.frozen_part import Counted, count_parameters
from tuner.models.registry import build_model
from tuner.training.batching import batch_shapes
from tuner.training.inspection.enough_memory import needed_bytes, within
from tuner.training.inspection.look import Findings, TermSeen, look, look_at_term
from tuner.training.step import Step

MOST_WINDOWS = 32
"""In the batch: enough for every operation of a step, on any machine."""

LARGE, WINDOWS_OF_LARGE = 20_000_000, 2
"""Of a network with so many parameters, frozen ones included, a step on a CPU takes seconds a
window."""

SMALL_GB = 10
"""Below, tenths of a gigabyte are said."""

_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True, kw_only=True)
class OneStep:
    """What was seen of it."""

    parameters: Counted
    windows: int
    loss: float
    seconds: float
    """Of processor time, all threads together, for the training step."""
    findings: Findings
    """What may not be meant, though the network can be trained."""
    term: TermSeen | None = None
    """Of a training whose loss has one."""


def train_one_step(
    architecture: Architecture,
    hyperparameters: Hyperparameters,
    training: TrainingSettings,
    prepared: PreparedData,
    *,
    inspected: bool = True,
) -> OneStep:
    """Build the network, train it for one step on the task's first training windows, validate it
    once, and, `inspected`, look at it in some more steps: on the CPU.

    Raises:
        UsageError: a class or settings that cannot be used, or a network that a step fails on.
        TunerError: a loss that is no number, or a network that does not fit into memory.
    """
    name = architecture.model
    data = to_device(prepared, "cpu").seeing(hyperparameters.input_size)
    model = build_within_memory(architecture, hyperparameters, data.shapes)
    counted = count_parameters(model)
    if not counted.trained:
        raise UsageError(f"{name}: has no parameters that could be trained")
    most = WINDOWS_OF_LARGE if sum(counted) > LARGE else MOST_WINDOWS
    windows = min(most, hyperparameters.batch_size, len(data.train))
    config = RunConfig(
        architecture=architecture, hyperparameters=hyperparameters, training=training, seed=0
    )
    step = Step(config, data, model)
    what = f"one forecast of {windows} windows"
    term = tried(name, what, lambda: look_at_term(config, step, data, windows))

    def first() -> tuple[float, float]:
        model.train()
        began = time.process_time()
        loss = float(step.train(step.gathered(data.train, torch.arange(windows))))
        seconds = time.process_time() - began
        model.eval()
        with torch.no_grad():
            step.loss(data.val.gather(torch.arange(min(windows, len(data.val)))))
        return loss, seconds

    loss, seconds = tried(name, f"one training step on {windows} windows", first)
    if not math.isfinite(loss):
        raise TunerError(
            f"{name}: the loss of its first {windows} windows is {loss}; check its arithmetic, "
            "and its initial weights"
        )
    findings = Findings()
    if inspected:
        findings = tried(name, "a look at some more steps", lambda: look(step, data, windows))
    _try_lone_window(name, step, data, hyperparameters.batch_size)
    return OneStep(
        parameters=counted,
        windows=windows,
        loss=loss,
        seconds=seconds,
        findings=findings,
        term=term,
    )


def _try_lone_window(name: str, step: Step, data: DeviceData, batch_size: int) -> None:
    """Where the last batch of an epoch has one window, a network with statistics over windows has
    none to compare it with: its first epoch would fail.
    """
    count = len(data.train)
    if 1 not in batch_shapes(count, batch_size):
        return
    step.model.train()
    try:
        tried(
            name,
            f"one training step on one window, the last batch of {count:,} at batch_size "
            f"{batch_size},",
            lambda: float(step.train(step.gathered(data.train, torch.arange(1)))),
        )
    except UsageError as error:
        raise UsageError(
            f"{error}; choose another batch_size, or a norm that needs no second window"
        ) from error


def build_within_memory(
    architecture: Architecture,
    hyperparameters: Hyperparameters,
    shapes: ModelShapes,
    *,
    seed: int = 0,
) -> nn.Module:
    """The network, from this seed, unless it would take more memory than is free."""
    free = free_memory_bytes()
    try:
        with torch.random.fork_rng(devices=[]), within(free):
            torch.manual_seed(seed)
            return build_model(architecture, shapes, hyperparameters)
    except Exception as error:
        if out_of_memory(error) is None:
            raise
        needed, all_of_it = needed_bytes(architecture, shapes, hyperparameters)
        what = f"more than {_gigabytes(free)} to be built"
        if all_of_it and needed > free:
            what = f"about {_gigabytes(needed)} for its parameters and their optimiser"
        raise TunerError(
            f"{architecture.model} needs {what}, {_gigabytes(free)} are free: choose a smaller "
            "hidden_size or smaller settings"
        ) from None


def tried(name: str, what: str, work: Callable[[], _Seen]) -> _Seen:
    """What `work` gives.

    Args:
        name: of the network.
        what: it is, in words.
        work: which runs code of the network's.

    Raises:
        UsageError: it fails.
        TunerError: it needs more memory than there is, or the network's term says why it fails.
    """
    try:
        return work()
    except TunerError:  # of a term, which says all itself
        raise
    except FAULTS as error:
        if out_of_memory(error) is not None:
            raise TunerError(
                f"{name}: {what} needs more memory than there is ({_gigabytes(free_memory_bytes())}"
                " are free): choose a smaller hidden_size or batch_size"
            ) from error
        raise UsageError(f"{name}: {what} failed: {on_one_line(error)}") from error


def _gigabytes(n_bytes: int) -> str:
    gigabytes = n_bytes / 1e9
    return f"{gigabytes:,.0f} GB" if gigabytes >= SMALL_GB else f"{gigabytes:.1f} GB"


# About how long an epoch of a network takes here: from a few steps, not from an epoch.


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
