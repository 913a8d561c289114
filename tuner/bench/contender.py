"""What takes part in a bench: it sets up the job anew, trains epochs of it, and says how long."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Protocol

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tuner.config import Precision, RunConfig
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.training.clock import synchronizer


class Scope(StrEnum):
    """What a contender's epoch consists of."""

    EPOCH = "training and validation"
    STEPS = "training steps only, without validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job every contender does, and where."""

    prepared: PreparedData
    device: torch.device
    precision: Precision
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Who takes part, with which sizes; the text parts go into the results as they are."""

    library: str
    variant: str
    backend: str
    hidden_size: int | None
    """None of a network that has no such size."""
    batch_size: int
    scope: Scope = Scope.EPOCH
    note: str = ""
    rung: str = ""
    """On a ladder: which one, in words."""

    @staticmethod
    def of(config: RunConfig, library: str, variant: str, backend: str = "", **more: Any) -> Entry:
        """Of this configuration, whose sizes it has."""
        sizes = config.hyperparameters
        return Entry(
            library=library,
            variant=variant,
            backend=backend,
            hidden_size=sizes.hidden_size,
            batch_size=sizes.batch_size,
            **more,
        )

    @property
    def name(self) -> str:
        parts = (self.library, self.variant, self.backend, self.rung)
        return " ".join(part for part in parts if part)

    @property
    def label(self) -> str:
        return f"{self.name}, {sizes(self)}"


class Sized(Protocol):
    """What has the sizes that are said of it."""

    @property
    def hidden_size(self) -> int | None:
        """Of its network."""

    @property
    def batch_size(self) -> int:
        """In windows."""


def sizes(of: Sized) -> str:
    """`hidden 64, batch 256`."""
    hidden = () if of.hidden_size is None else (f"hidden {of.hidden_size}",)
    return ", ".join((*hidden, f"batch {of.batch_size}"))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One counted epoch: `seconds` of the entry's scope, `step_s` of a step's training alone."""

    seconds: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One turn: set up from nothing, one epoch that settles and does not count, then epochs.

    `counted` are the readings of `time.perf_counter` around the counted epochs. `peak_memory_bytes`
    is the most device memory that this contender held in its turn, its data included; None on a
    CPU.
    """

    setup_s: float
    epochs: tuple[Epoch, ...]
    counted: tuple[float, float]
    peak_memory_bytes: int | None
    n_parameters: int
    n_windows: int
    n_steps: int


class Contender(Protocol):
    """One row of the results. Every turn starts from nothing and leaves nothing on the device."""

    @property
    def entry(self) -> Entry:
        """Who this is."""

    def run(self, epochs: int) -> Round:
        """One turn with so many counted epochs; the device is idle whenever the clock is read."""

    def kernels_per_step(self) -> int | None:
        """CUDA kernels that one training step launches, without copies and fills; None on a CPU."""


def trained_with(config: RunConfig, **changes: object) -> RunConfig:
    """The same configuration with other settings of training."""
    return replace(config, training=config.training.but(**changes))


def with_batch(config: RunConfig, batch_size: int) -> RunConfig:
    """The same configuration with another batch."""
    return replace(config, hyperparameters=replace(config.hyperparameters, batch_size=batch_size))


def torch_device(device: Gpu | CpuCores) -> torch.device:
    """The device as torch names it where it is the only one; on a CPU, torch keeps to its cores."""
    if isinstance(device, Gpu):
        return torch.device("cuda:0")
    torch.set_num_threads(len(device.cores))
    return torch.device("cpu")


class DeviceMemory:
    """The most memory allocated on a device since this was made, beyond what was there before.

    What others left is given back first (`release_leftovers`): given back in the middle of a turn,
    it would be taken off that turn's figure, and collected on its clock. So this is made before a
    turn's first reading of the clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        release_leftovers(device)
        if device.type == "cuda":
            self._before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)

    def peak(self) -> int | None:
        if self._device.type != "cuda":
            return None
        return torch.cuda.max_memory_allocated(self._device) - self._before


def release_leftovers(device: torch.device) -> None:
    """Give back what is on the device and belongs to nobody any more.

    That is what lies in reference cycles, and the workspaces that cuBLAS keeps for every stream it
    has ever seen, a quarter of a gigabyte after captured graphs: Lightning gives these back when a
    training of its own begins and ends.
    """
    gc.collect()
    if device.type != "cuda":
        return
    torch.cuda.synchronize(device)
    if (clear_workspaces := getattr(torch._C, "_cuda_clearCublasWorkspaces", None)) is not None:  # noqa: SLF001 - no public way
        clear_workspaces()
    torch.cuda.empty_cache()


def reader(device: torch.device) -> Callable[[], float]:
    """A clock that is read when the device has finished everything asked of it; seconds."""
    synchronize = synchronizer(device)

    def read() -> float:
        synchronize()
        return time.perf_counter()

    return read


# What the turns of a contender came to, also as text: for a fresh process that goes on.


@dataclass(slots=True)
class Measurement:
    """What one contender's turns came to; `failure` is why it dropped out, or empty."""

    entry: Entry
    cold_setup_s: float | None = None
    rounds: list[Round] = field(default_factory=list)
    kernels_per_step: int | None = None
    gpu_utilisation: float | None = None
    failure: str = ""
    looked_inside: bool = False


def as_text(measurements: Sequence[Measurement]) -> str:
    """All that was measured, to the last digit."""
    return json.dumps([asdict(measured) for measured in measurements])


def from_text(text: str, entries: Sequence[Entry]) -> list[Measurement]:
    """What `as_text` wrote of these contenders.

    Raises:
        ValueError: it is of others, or of none at all.
    """
    try:
        found = [
            _measurement(each, entry) for each, entry in zip(json.loads(text), entries, strict=True)
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    return found


def _measurement(values: dict[str, Any], entry: Entry) -> Measurement:
    if values["entry"] != asdict(entry):
        raise ValueError(f"measured was {values['entry']}, not {entry.label}")
    plain = {
        each.name: values[each.name]
        for each in fields(Measurement)
        if each.name not in ("entry", "rounds")
    }
    return Measurement(entry=entry, rounds=[_round(each) for each in values["rounds"]], **plain)


def _round(values: dict[str, Any]) -> Round:
    first, last = values["counted"]
    epochs = tuple(Epoch(**each) for each in values["epochs"])
    return Round(**(values | {"epochs": epochs, "counted": (first, last)}))


# How many CUDA kernels a piece of work launches, those inside a replayed graph counted too.


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
