"""Where a worker's work comes from: queues whose turn it is, and what to do with what they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.storage.queue.outbox import Outbox
from tuner.storage.queue.protocol import Queue
from tuner.storage.records import Claim, RunTicket, TrialResult
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.heartbeat import Heartbeat
from tuner.worker.outages import Retry
from tuner.worker.paths import WorkerPaths
from tuner.worker.running import RunningTrial

Held = TypeVar("Held")


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker has at hand: its studies and its device,
    and where it keeps what must outlive it.
    """

    studies: Sequence[OpenStudy]
    device: Gpu | CpuCores
    name: str
    stored: Retry
    heartbeat: Heartbeat
    paths: WorkerPaths | None
    keys: dict[str, str] = field(default_factory=dict)
    """Of each study, by name, once the worker has signed in there: see `OpenStudy.key`."""

    def outbox(self, opened: OpenStudy) -> Outbox | None:
        if self.paths is None:
            return None
        return Outbox(self.paths.outbox, self.keys[opened.name])

    def checkpoints(self, opened: OpenStudy) -> Path | None:
        if self.paths is None:
            return None
        return self.paths.checkpoints(opened.name, self.keys[opened.name])


class Piece(ABC):
    """A claimed piece of work, from its claim to its result."""

    opened: OpenStudy
    """The study it belongs to."""
    what: str
    """What it is called in a log."""
    ticket: Claim | RunTicket
    """What its result is delivered under."""
    seed: int
    """That a failure is recorded with."""
    running: RunningTrial

    @abstractmethod
    def prepare(self) -> bool:
        """Ask the database for what the training needs; False when the lease was lost meanwhile.

        Raises:
            UnfitConfigurationError: this configuration cannot be trained; that is its result.
        """

    @abstractmethod
    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        """What to train, once it is prepared."""

    def may_begin(self) -> bool:
        """Whether there is still time for it, now that it is its turn; else it is handed back."""
        return True

    def granted(self, job: TrialJob) -> TrialJob:
        """The job with what it may take, now that it may begin."""
        return job

    def begins(self) -> None:  # noqa: B027 - some have nothing to do here
        """It has the device; the training begins."""

    def trained(self) -> None:  # noqa: B027 - some have nothing to do here
        """The training has returned, with a result or without."""

    def keep(self) -> None:  # noqa: B027 - some have nothing to do here
        """Its lease has just been renewed, by another thread. Database failures may be raised."""

    def recorded(self, result: TrialResult) -> TrialResult:
        """The result with what is recorded beside it."""
        return result

    def counted(self) -> None:  # noqa: B027 - some have nothing to do here
        """Its result is stored, and counts."""


@dataclass(frozen=True, slots=True)
class Turn(Generic[Held]):
    """A queue that has work left, and what to do with what it gives."""

    queue: Queue[Held]
    take_up: Callable[[Held], Piece]
    all_taken: bool = False
    """Others have all that is left: a claim would only keep these waiting."""


class Source(ABC):
    """Queues of one kind of work."""

    @property
    @abstractmethod
    def queues(self) -> Sequence[Queue[Any]]:
        """All of them."""

    @abstractmethod
    def in_turn(self) -> Sequence[Turn[Any]]:
        """Those with work left, the one whose turn it is first; none when the work is done."""

    def sign_in(self, opened: OpenStudy) -> None:  # noqa: B027 - some have nothing to do here
        """Prepare a study, before the worker is listed there."""

    def idle(self) -> None:  # noqa: B027 - some have nothing to do here
        """There was nothing to claim just now."""
