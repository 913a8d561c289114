"""The bench itself: everyone's first contact, then turn by turn through all of them, then the looks inside."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from tuner.bench.contender import Contender, Entry, Round
from tuner.bench.utilisation import UtilisationSampler
from tuner.devices import Gpu
from tuner.errors import UsageError, first_line
from tuner.training.out_of_memory import out_of_memory

WATCHED_S = 3.0
"""How long a contender trains while the GPU's utilisation is read."""


@dataclass(slots=True)
class Measurement:
    """What one contender's turns came to. `failure` is why it dropped out, in one line; empty when it did not."""

    entry: Entry
    cold_setup_s: float | None = None
    rounds: list[Round] = field(default_factory=list)
    kernels_per_step: int | None = None
    gpu_utilisation: float | None = None
    failure: str = ""


def run_bench(
    contenders: Sequence[Contender], *, rounds: int, epochs: int, gpu: Gpu | None, announce: Callable[[str], None]
) -> list[Measurement]:
    """Measure all contenders in one run, interleaved: in each round everyone has a turn, in the same order.

    The first contact is apart: its set-up is the cold one, its epochs are thrown away. Kernels and utilisation are
    looked at last, for a profiler once started may slow what comes after it. Who fails drops out with its reason.

    Args:
        contenders: in their order.
        rounds: how many counted turns each has.
        epochs: counted epochs in a turn.
        gpu: whose utilisation is read; None on a CPU.
        announce: told in one line how it is going.
    """
    if rounds < 1 or epochs < 1:
        raise UsageError(f"--rounds {rounds}, --epochs {epochs}: both must be at least 1")
    measurements = [Measurement(contender.entry) for contender in contenders]
    pairs = list(zip(contenders, measurements, strict=True))
    for number in range(rounds + 1):
        title = f"round {number} of {rounds}" if number else "first contact"
        for contender, measured in pairs:
            if not measured.failure:
                _attempt(measured, lambda c=contender, m=measured, n=number: _turn(c, m, n, epochs))  # type: ignore[misc]
                announce(f"{title}: {contender.entry.label}: {_outcome(measured)}")
    for contender, measured in pairs:
        if not measured.failure and gpu is not None:
            _attempt(measured, lambda c=contender, m=measured: _look_inside(c, m, gpu))  # type: ignore[misc]
            announce(f"a look inside: {contender.entry.label}: {_inside(measured)}")
    return measurements


def _turn(contender: Contender, measured: Measurement, number: int, epochs: int) -> None:
    if number == 0:
        measured.cold_setup_s = contender.run(1).setup_s
    else:
        measured.rounds.append(contender.run(epochs))


def _look_inside(contender: Contender, measured: Measurement, gpu: Gpu) -> None:
    usual = statistics.median(epoch.seconds for turn in measured.rounds for epoch in turn.epochs)
    with UtilisationSampler(gpu) as sampler:
        watched = contender.run(math.ceil(WATCHED_S / usual))
    measured.gpu_utilisation = sampler.median(watched.counted)
    measured.kernels_per_step = contender.kernels_per_step()


def _attempt(measured: Measurement, work: Callable[[], None]) -> None:
    """Misuse ends the bench; any other failure is this contender's own and becomes its result."""
    try:
        work()
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in the contender's row
        measured.failure = reason_of(error)
    # Out here the failed frames are gone, and with them what they held; trainers and networks refer to each other.
    gc.collect()
    try:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    except RuntimeError as error:  # the CUDA context is lost: everyone after this one will say so, too
        measured.failure = measured.failure or reason_of(error)


def reason_of(error: Exception) -> str:
    """One line: `out of memory: …`, or the kind of error and the first line of what it says."""
    if (reason := out_of_memory(error)) is not None:
        return f"out of memory: {first_line(reason)}"
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {first}"


def _outcome(measured: Measurement) -> str:
    if measured.failure:
        return measured.failure
    if not measured.rounds:
        return f"set up in {measured.cold_setup_s:.2f} s"
    return f"{statistics.median(epoch.seconds for epoch in measured.rounds[-1].epochs):.4f} s/epoch"


def _inside(measured: Measurement) -> str:
    return measured.failure or f"{measured.kernels_per_step} kernels a step, GPU {measured.gpu_utilisation} % busy"
