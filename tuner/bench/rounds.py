"""The bench itself: everyone's first contact, then turns in rounds, then the looks inside."""

from __future__ import annotations

import gc
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch

from tuner.bench.contender import Contender, Measurement
from tuner.devices import Gpu
from tuner.devices.gpu import nvml
from tuner.devices.watch import NVML_PERIOD_S
from tuner.errors import UsageError, first_line
from tuner.models.fault import out_of_memory
from tuner.trial.job import lost_context

# How busy the GPU is while a contender trains, as NVML says it.


INTERVAL_S = 0.1


class UtilisationSampler:
    """Reads the GPU's utilisation ten times a second, in a thread, while the `with` block runs."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._samples: list[tuple[float, int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def median(self, window: tuple[float, float]) -> float | None:
        """Median in per cent between two `perf_counter` readings; None where NVML is silent."""
        return median_within(self._samples, window)

    def _watch(self) -> None:
        with nvml() as library:
            if library is None:
                return
            handle = library.nvmlDeviceGetHandleByUUID(self._gpu.uuid)
            while not self._stop.wait(INTERVAL_S):
                try:
                    used = library.nvmlDeviceGetUtilizationRates(handle).gpu
                except library.NVMLError:  # not every card or virtual machine has this figure
                    return
                self._samples.append((time.perf_counter(), int(used)))


def median_within(samples: list[tuple[float, int]], window: tuple[float, float]) -> float | None:
    """Samples early in the window still speak of the time before: left out while others remain."""
    first, last = window
    inside = [used for at, used in samples if first <= at <= last]
    settled = [used for at, used in samples if first + NVML_PERIOD_S <= at <= last]
    return statistics.median(settled or inside) if inside else None


WATCHED_S = 3.0
"""How long a contender trains while the GPU's utilisation is read."""

LEFT_UNUSABLE = "it left the device's context unusable, and the others went on in a fresh process"


class FreshProcessError(Exception):
    """The device's context is lost: another process must measure the contenders that are left.

    `measurements` is all that was measured up to now.
    """

    def __init__(self, measurements: list[Measurement]) -> None:
        super().__init__("the device's context is lost")
        self.measurements = measurements


def run_bench(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    epochs: int,
    gpu: Gpu | None,
    announce: Callable[[str], None],
    after_round: Callable[[Sequence[Measurement], int], None] = lambda _measurements, _number: None,
    carried: Sequence[Measurement] | None = None,
) -> list[Measurement]:
    """Measure all contenders in one run: in each round everyone has a turn, in the same order.

    The first contact is apart: its set-up is the cold one, its epochs are thrown away. Kernels and
    utilisation are looked at last, for a profiler once started may slow what comes after it. Who
    fails drops out with its reason.

    Args:
        contenders: in their order.
        rounds: how many counted turns each has.
        epochs: counted epochs in a turn.
        gpu: whose utilisation is read; None on a CPU.
        announce: told in one line how it is going.
        after_round: called after every round, between turns, with all measurements so far and the
            round's number.
        carried: what an earlier process measured of them. What is left has a first contact here
            too, whose set-up does not count if it had one before.

    Raises:
        UsageError: misuse, which ends the bench.
        FreshProcessError: a contender failed in a way that leaves nothing usable to those after it.
    """
    if rounds < 1 or epochs < 1:
        raise UsageError(f"--rounds {rounds}, --epochs {epochs}: both must be at least 1")
    measurements = (
        [Measurement(contender.entry) for contender in contenders]
        if carried is None
        else list(carried)
    )
    bench = _Bench(contenders, measurements, rounds, epochs, gpu, announce)
    bench.first_contact()
    for number in range(1, rounds + 1):
        if bench.round(number):
            after_round(measurements, number)
    bench.look_inside()
    return measurements


_Work = Callable[[Contender, Measurement], str]
"""Measures a contender, and says in one line how it went."""


@dataclass(frozen=True, slots=True)
class _Bench:
    contenders: Sequence[Contender]
    measurements: list[Measurement]
    rounds: int
    epochs: int
    gpu: Gpu | None
    announce: Callable[[str], None]

    def first_contact(self) -> None:
        def contact(contender: Contender, measured: Measurement) -> str:
            setup_s = contender.run(1).setup_s
            if measured.cold_setup_s is None:
                measured.cold_setup_s = setup_s
            return f"set up in {setup_s:.2f} s"

        self._all("first contact", contact, skip=lambda measured: not self._has_work(measured))

    def round(self, number: int) -> bool:
        """True when anyone had a turn."""

        def turn(contender: Contender, measured: Measurement) -> str:
            measured.rounds.append(contender.run(self.epochs))
            usual = statistics.median(epoch.seconds for epoch in measured.rounds[-1].epochs)
            return f"{usual:.4f} s/epoch"

        return self._all(
            f"round {number} of {self.rounds}",
            turn,
            skip=lambda measured: len(measured.rounds) >= number,
        )

    def look_inside(self) -> None:
        if (gpu := self.gpu) is None:
            return

        def look(contender: Contender, measured: Measurement) -> str:
            usual = statistics.median(
                epoch.seconds for turn in measured.rounds for epoch in turn.epochs
            )
            with UtilisationSampler(gpu) as sampler:
                watched = contender.run(math.ceil(WATCHED_S / usual))
            measured.gpu_utilisation = sampler.median(watched.counted)
            measured.kernels_per_step = contender.kernels_per_step()
            measured.looked_inside = True
            return (
                f"{measured.kernels_per_step} kernels a step, GPU {measured.gpu_utilisation} % busy"
            )

        self._all("a look inside", look, skip=lambda measured: measured.looked_inside)

    def _has_work(self, measured: Measurement) -> bool:
        seen = self.gpu is None or measured.looked_inside
        return not measured.failure and (len(measured.rounds) < self.rounds or not seen)

    def _all(self, title: str, work: _Work, *, skip: Callable[[Measurement], bool]) -> bool:
        """Everyone who takes part and is not to be skipped; True when there was anyone."""
        anyone = False
        for contender, measured in zip(self.contenders, self.measurements, strict=True):
            if measured.failure or skip(measured):
                continue
            anyone = True
            usable, outcome = _attempt(contender, measured, work)
            others_wait = any(self._has_work(each) for each in self.measurements)
            if not usable and others_wait:
                measured.failure += f"; {LEFT_UNUSABLE}"
            self.announce(f"{title}: {contender.entry.label}: {measured.failure or outcome}")
            if not usable and others_wait:
                raise FreshProcessError(self.measurements)
        return anyone


def _attempt(contender: Contender, measured: Measurement, work: _Work) -> tuple[bool, str]:
    """Whether those after it can use the device, and how it went in one line where it did not fail.

    Misuse ends the bench; any other failure is this contender's own and becomes its result.
    """
    usable, outcome = True, ""
    try:
        outcome = work(contender, measured)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in the contender's row
        measured.failure, usable = reason_of(error), not _unusable_after(error)
    # Out here the failed frames are gone, with what they held. Trainers and networks refer to each
    # other.
    gc.collect()
    try:
        if usable and torch.cuda.is_available():
            torch.cuda.empty_cache()
    except RuntimeError as error:
        measured.failure, usable = measured.failure or reason_of(error), False
    return usable, outcome


def _unusable_after(error: Exception) -> bool:
    """Whether memory ran out without harm to others: no capture was cut short and failed to end."""
    reason = out_of_memory(error)
    return lost_context(error) if reason is None else reason is not error


def reason_of(error: Exception) -> str:
    """One line: `out of memory: …`, or the kind of error and the first line of what it says."""
    if (reason := out_of_memory(error)) is not None:
        return f"out of memory: {first_line(reason)}"
    kind, said = type(error).__name__, first_line(error)
    return said if said == kind else f"{kind}: {said}"
