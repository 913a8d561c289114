"""What a worker and its trainer tell each other, through a pipe between the two alone.

The order of a talk: the worker gives the data, and hears that it is ready or refused. Then, for
each training, it gives an order and hears of its epochs, until it has ended. Only a backend that
was measured is answered.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.search.pruning import Verdict
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob


@dataclass(frozen=True, slots=True)
class Data:
    """What all trainings to come are on, by data hash, and the device."""

    prepared: Mapping[str, PreparedData]
    device: Gpu | CpuCores


@dataclass(frozen=True, slots=True)
class Ready:
    """The data is on the device; `given_up`: it is not, for the worker was told to stop."""

    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing can be trained, in one line. Of the `locks` of devices: nobody can use them."""

    message: str
    locks: bool = False


def order_of(job: TrialJob) -> TrialJob:
    """The job as one that tells nobody: those whom it told are on the other side."""
    told = ("on_epoch", "on_curve", "on_begun", "on_phase", "on_wait", "on_backend")
    nobody: dict[str, Any] = dict.fromkeys((*told, "should_stop"), _nobody)
    return dataclasses.replace(job, **nobody)


def _nobody(*_: object) -> None:
    """Unlike a lambda, it has a name by which another process finds it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What `TrialJob.on_epoch` and its sisters are told, by the name of that.

    It `waits` for an answer: of a measured backend for the choice that counts, of an epoch on a CPU
    until the worker has stored it.
    """

    name: str
    given: tuple[Any, ...]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The result, None of one that was interrupted, and the verdicts on its epochs."""

    result: TrialResult | None
    verdicts: Sequence[Verdict]


# A flag that one process sets and another reads between two training steps: a byte they share.


class StopByte:
    """Reading it is reading memory: no call of the kernel, nothing that the clock would notice."""

    def __init__(self, descriptor: int) -> None:
        """Shares the byte of `descriptor`, a file of one byte, which stays the caller's."""
        self._shared = mmap.mmap(descriptor, 1)

    @staticmethod
    def file() -> int:
        """A descriptor of a new one that has no name, for the two to share."""
        with tempfile.TemporaryFile() as file:
            file.write(b"\0")
            file.flush()
            return os.dup(file.fileno())

    def set(self) -> None:
        self._shared[0] = 1

    def clear(self) -> None:
        self._shared[0] = 0

    def is_set(self) -> bool:
        return self._shared[0] != 0
