"""Settings of training that do not go together, or not on a kind of device: in one line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.config import Backend, CompileMode, Precision, TrainingSettings

PLAIN = (Backend.AUTO, Backend.EAGER)
WHY_EAGER = (
    "checkpoint_activations runs as plain operations: to compute a block again, the state of the "
    "random numbers is put back, which a captured or compiled step cannot do"
)
WHY_TOGETHER = (
    "gpus_per_trial runs as plain operations: between the backward pass and the update the devices "
    "add up their gradients, which no captured or compiled step does"
)


def plainly_why(training: TrainingSettings) -> str:
    """Why `auto` runs plain operations with these settings, whatever the network; empty where it
    may do otherwise.
    """
    if training.gpus_per_trial > 1:
        return WHY_TOGETHER
    return WHY_EAGER if training.checkpoint_activations else ""


HALF_ON = ("cpu", "cuda")
"""Kinds of devices on which a forward pass can be in float16."""


def why_not_together(training: TrainingSettings) -> str | None:
    """What of these settings contradicts what, whatever the device; None where nothing does."""
    backend, mode = training.backend, training.compile_mode
    if training.gpus_per_trial > 1 and backend not in PLAIN:
        return (
            f"gpus_per_trial {training.gpus_per_trial} adds up gradients between two steps of plain"
            f" operations, which backend {backend.value!r} cannot: choose eager or auto, or 1"
        )
    if training.checkpoint_activations and backend not in PLAIN:
        return (
            "checkpoint_activations computes blocks again from the random numbers they had, which "
            f"backend {backend.value!r} cannot: choose eager or auto, or leave it out"
        )
    if mode is not CompileMode.DEFAULT and backend is not Backend.COMPILE:
        return (
            f"compile_mode {mode.value!r} is a way of backend 'compile', not of {backend.value!r}: "
            "choose that backend, or leave the mode out"
        )
    return None


def why_not_on(training: TrainingSettings, device: str) -> str | None:
    """What of these settings a kind of device (`cpu`, `cuda`) does not have; None where nothing."""
    mode = training.compile_mode
    if mode is not CompileMode.DEFAULT and device == "cpu":
        return (
            f"compile_mode {mode.value!r} is torch.compile's, on a GPU; on the CPU backend "
            "'compile' is kernels in C++, which have no modes: leave it out"
        )
    if training.precision is Precision.FP16 and device not in HALF_ON:
        return f"precision 'fp16' needs a CUDA device or the CPU, this one is {device}"
    return None


# What `auto` came to, as it was measured on a device.


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """What `auto` means for networks of certain sizes on a device, as it was measured there."""

    backend: Backend
    reason: str = ""
    """Why not captured graphs, in one line; empty where it is these."""
    epoch_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Seconds that an epoch would take, by each backend that was tried and works."""

    @property
    def measured(self) -> str:
        """`an epoch takes 0.41 s by graph, 1.2 s by eager`, the fastest first."""
        ranked = sorted(self.epoch_s.items(), key=lambda item: item[1])
        said = ", ".join(f"{seconds:.3g} s by {name}" for name, seconds in ranked)
        return f"an epoch takes {said}" if said else ""
