"""NVIDIA GPUs through NVML: no CUDA context is created,
so a supervisor may look without touching the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tuner.errors import UsageError

_NONE_HERE = "no GPU is visible here; run with --cpu, or check the driver (tuner doctor)"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU, or several for one trial together. `index` counts the visible ones,
    as people type it in `--gpus`; `number` counts all.
    """

    index: int
    uuid: str
    """Of several: all of theirs, with commas, as `CUDA_VISIBLE_DEVICES` has them."""
    name: str
    number: int
    members: tuple[Gpu, ...] = ()
    """The several; none where it is one."""

    @staticmethod
    def together(gpus: Sequence[Gpu]) -> Gpu:
        """These as the device of one trial."""
        first = gpus[0]
        if len(gpus) == 1:
            return first
        uuids, name = ",".join(gpu.uuid for gpu in gpus), of_several(first.name, len(gpus))
        return Gpu(first.index, uuids, name, first.number, tuple(gpus))

    @property
    def devices(self) -> tuple[Gpu, ...]:
        """Each by itself."""
        return self.members or (self,)

    @property
    def model(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        return f"{self.name} #{','.join(str(gpu.number) for gpu in self.devices)}"

    @property
    def lock_names(self) -> tuple[str, ...]:
        return tuple(gpu.uuid for gpu in self.devices)

    @property
    def lease_keys(self) -> tuple[str, ...]:
        """What it is called in the database: no other GPU anywhere has its UUID."""
        return self.lock_names


def of_several(model: str, devices: int) -> str:
    """The model of so many devices that train a trial together: their times compare with no other
    number's.

    >>> of_several("NVIDIA H200", 2)
    '2 x NVIDIA H200'
    """
    return model if devices == 1 else f"{devices} x {model}"


@contextmanager
def nvml() -> Iterator[Any | None]:
    """The initialised NVML module, or None where there is no NVIDIA driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def list_gpus(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that a CUDA program started with `environment` would see,
    in its order (`CUDA_VISIBLE_DEVICES`).
    """
    with nvml() as library:
        if library is None:
            return ()
        physical = []
        for number in range(library.nvmlDeviceGetCount()):
            handle = library.nvmlDeviceGetHandleByIndex(number)
            physical.append((library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle)))
    visible = _visible([uuid for uuid, _ in physical], environment.get("CUDA_VISIBLE_DEVICES"))
    return tuple(Gpu(index, *physical[number], number) for index, number in enumerate(visible))


def compute_capability(gpu: Gpu) -> tuple[int, int] | None:
    """What kernels for this GPU are compiled for, (9, 0) for Hopper; None where NVML cannot say."""
    with nvml() as library:
        if library is None:
            return None
        try:
            handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
            major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
        except library.NVMLError:
            return None
    return int(major), int(minor)


def _visible(uuids: Sequence[str], setting: str | None) -> list[int]:
    """CUDA's reading of `CUDA_VISIBLE_DEVICES`: indices or UUID prefixes, up to the first that
    names no device.
    """
    if setting is None:
        return list(range(len(uuids)))
    visible: list[int] = []
    for entry in (part.strip() for part in setting.split(",")):
        if _is_index(entry) and int(entry) < len(uuids):
            visible.append(int(entry))
            continue
        matching = [number for number, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if not matching:
            break
        visible.append(matching[0])
    return list(dict.fromkeys(visible))  # a device named twice is still one device, for one worker


def pick_gpus(wanted: str, available: Sequence[Gpu], *, flag: str = "--gpus") -> tuple[Gpu, ...]:
    """The GPUs that `flag` names: `all`, or indices such as `0,1`.

    Raises:
        UsageError: an empty list, not a number, a GPU that is not there, or one named twice. There
            is no fall-back to the CPU: who asked for a GPU gets a GPU or an error.
    """
    if wanted.strip() == "all":
        if not available:
            raise UsageError(f"{flag} all: {_NONE_HERE}")
        return tuple(available)
    parts = [part.strip() for part in wanted.split(",")]
    if not any(parts):
        raise UsageError(f"{flag}: the list is empty; expected indices such as 0,1 or 'all'")
    picked: list[Gpu] = []
    for part in parts:
        if not _is_index(part):
            raise UsageError(
                f"{flag}: {part!r} is no GPU index; expected indices such as 0,1 or 'all'"
            )
        if int(part) >= len(available):
            there = f"there are {_indices(available)}; name one of these, or run with --cpu"
            raise UsageError(
                f"{flag}: there is no GPU {part}: {there if available else _NONE_HERE}"
            )
        gpu = available[int(part)]
        if gpu in picked:
            raise UsageError(f"{flag}: GPU {part} is named twice; each GPU runs one worker")
        picked.append(gpu)
    return tuple(picked)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _indices(gpus: Sequence[Gpu]) -> str:
    return ", ".join(str(gpu.index) for gpu in gpus)
