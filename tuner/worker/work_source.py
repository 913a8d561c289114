"""Where a worker's work comes from: queues whose turn it is, and what to do with what they give."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.config import Backend, Hyperparameters, StopReason, Value
from tuner.devices import CpuCores, Gpu
from tuner.devices.backend_rules import BackendChoice
from tuner.files.plain import harmless
from tuner.models.names import builtin_names
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.queue.verifications import Verifications
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.storage.schema import backend_choices
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob, Waited
from tuner.worker.heartbeat import Heartbeat
from tuner.worker.outages import Retry
from tuner.worker.paths import Outbox, WorkerPaths
from tuner.worker.registration import torch_version
from tuner.worker.running import RunningTrial

# What `auto` came to in a study: measured once for each size of network, device and torch, and
# the same for all its workers.


MEASURED = (Backend.EAGER, Backend.GRAPH, Backend.COMPILE)
"""The backends that are tried."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MeasuredBackend:
    """What it means in a study for networks of certain sizes on a worker's device."""

    engine: Engine | None
    """Of the database; None where nothing is measured: the backend was named, or follows from sizes
    alone."""
    study_id: int
    measured_for: str
    """What a measurement holds for, as JSON: sizes, model of device and version of torch."""

    @staticmethod
    def of(
        opened: OpenStudy, device: Gpu | CpuCores, hyperparameters: Hyperparameters
    ) -> MeasuredBackend:
        """Asks the database for nothing yet. Rates and decays, numbers that are no whole ones,
        change no step's time.
        """
        definition = opened.definition
        measured = (
            isinstance(device, Gpu)
            and definition.training.backend is Backend.AUTO
            and definition.architecture.model not in builtin_names()
            and definition.program is None
        )
        values = hyperparameters.as_dict().items()
        measured_for = {
            "sizes": {name: value for name, value in values if not isinstance(value, float)},
            "device_model": device.model,
            "torch_version": torch_version() or "",
        }
        engine = opened.database.engine if measured else None
        return MeasuredBackend(engine, opened.study_id, json.dumps(measured_for, sort_keys=True))

    def known(self) -> BackendChoice | None:
        """What the study's workers agreed on; None where they have not yet, or need not, and where
        what is stored can be no choice.

        Raises:
            DBAPIError: the database is away.
        """
        if self.engine is None:
            return None
        mine = backend_choices.c.study_id == self.study_id
        query = select(backend_choices.c.choice).where(mine, backend_choices.c.key == self._key)
        with self.engine.connect() as connection:
            return _choice(connection.execute(query).scalar_one_or_none())

    def settle(self, choice: BackendChoice) -> BackendChoice:
        """The first one measured counts. While the database is away, it is this one."""
        if self.engine is None:
            return choice
        try:
            counts = self._stored(self.engine, choice)
        except DATABASE_FAILURES as error:
            _log.warning(
                "the database is away (%s); the backend is measured again", cause_of(error)
            )
            return choice
        _log.info("backend %s: %s", counts.backend.value, counts.measured)
        return counts

    def _stored(self, engine: Engine, choice: BackendChoice) -> BackendChoice:
        """Unless somebody was faster; the one that counts."""
        row = {
            "study_id": self.study_id,
            "key": self._key,
            "measured_for": self.measured_for,
            "choice": json.dumps(asdict(choice)),
        }
        try:
            with engine.begin() as connection:
                connection.execute(insert(backend_choices).values(**row, chosen_at=database_now()))
        except IntegrityError:
            return self.known() or choice
        return choice

    @property
    def _key(self) -> str:
        return hashlib.sha256(self.measured_for.encode()).hexdigest()


def _choice(text: object) -> BackendChoice | None:
    """What is stored may be a stranger's."""
    try:
        stored: Any = json.loads(str(text))
        backend = Backend(stored["backend"])
        seconds = {harmless(str(name)): float(s) for name, s in stored["epoch_s"].items()}
        reason = harmless(str(stored["reason"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if backend not in MEASURED or not all(map(math.isfinite, seconds.values())):
        return None
    return BackendChoice(backend=backend, reason=reason, epoch_s=seconds)


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

    _hyperparameters: Hyperparameters
    _policy: SearchPolicy
    _measured: MeasuredBackend
    _backend: BackendChoice | None

    def __init__(
        self,
        context: WorkerContext,
        opened: OpenStudy,
        ticket: Claim,
        grants: GpuGrants,
        *,
        number: int,
        seed: int,
        what: str,
    ) -> None:
        """Of the trial of this `number`. Its result is delivered under the `ticket`, a failure is
        recorded with the `seed`, and a log calls it `what`.
        """
        self._context = context
        self._granted = Granted(grants, ticket.token)
        self._waited = Waited()
        self._since: float | None = None
        self._had_s: float | None = None
        self.opened, self.ticket, self.seed, self.what = opened, ticket, seed, what
        self.running = RunningTrial(
            opened,
            context.name,
            number,
            claim=None if ticket.trial_id is None else ticket,
            heartbeat=context.heartbeat,
            outbox=context.outbox(opened),
        )

    @abstractmethod
    def prepare(self) -> bool:
        """Ask the database for what the training needs; False when the lease was lost meanwhile.

        Raises:
            UnfitConfigurationError: this configuration cannot be trained; that is its result.
        """

    @abstractmethod
    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        """What to train, once it is prepared."""

    def _take(self, params: Mapping[str, Value]) -> None:
        """Prepare for this configuration."""
        self._hyperparameters = self.opened.definition.hyperparameters(params)
        self._measured = MeasuredBackend.of(
            self.opened, self._context.device, self._hyperparameters
        )
        known, what = self._measured.known, "a measured backend"
        self._backend = self._context.stored(known, what, until_stopped=True)

    def _job(self, should_stop: Callable[[], StopReason | None], **own: Any) -> TrialJob:
        common: dict[str, Any] = {
            "study": self.opened.name,
            "definition": self.opened.definition,
            "policy": self._policy,
            "number": self.running.trial_number,
            "hyperparameters": self._hyperparameters,
            "backend": self._backend,
            "on_backend": self._measured.settle,
            "device": self._context.device,
            "on_epoch": self.running.on_epoch,
            "on_curve": self.running.on_curve,
            "on_phase": self._context.heartbeat.phase,
            "on_wait": self._waited.told,
            "should_stop": should_stop,
        }
        return TrialJob(**(common | own))

    @abstractmethod
    def may_begin(self) -> bool:
        """Whether there is still time for it, now that it is its turn; else it is handed back."""

    @abstractmethod
    def granted(self, job: TrialJob) -> TrialJob:
        """The job with what it may take, now that it may begin."""

    def begins(self) -> None:
        """It has the device; the training begins."""
        self._since = time.perf_counter()

    def trained(self) -> None:
        """The training has returned, with a result or without."""
        self._had_s = self.had_s()
        self._granted.took(self._had_s)

    def had_s(self) -> float:
        """Seconds that it has had its device for by now, its waits for it apart. Any thread may
        ask.
        """
        if self._had_s is not None or self._since is None:
            return self._had_s or 0.0
        return max(0.0, time.perf_counter() - self._since - self._waited.seconds)

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


# What a worker's trainings may take of the device hours that their studies share.


@dataclass(slots=True)
class Granted:
    """Of one claim."""

    grants: GpuGrants
    token: str
    hours: GpuHours | None = None
    seconds: float | None = None
    """That its training may take; None: as many as it needs."""

    def ask(self, opened: OpenStudy, policy: SearchPolicy, beside_s: float = 0.0) -> bool:
        """Whether its training may begin; its device has waited for `beside_s`. Without the
        database nobody knows: then it must not.
        """
        self.hours = self.grants.of(opened, policy)
        if self.hours is None:
            return True
        try:
            self.seconds = self.hours.ask(self.token, self.grants.worker, beside_s)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s); nothing begins without it", cause_of(error))
            return False
        return self.seconds is not None

    def took(self, seconds: float) -> None:
        """Its training has ended. Where the database does not hear of it, all of the grant counts
        until the result is stored.
        """
        if self.hours is None:
            return
        try:
            self.hours.took(self.token, seconds)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s)", cause_of(error))


@dataclass(slots=True)
class GpuGrants:
    """Of one worker; what each limit's studies have spent is read once."""

    worker: str
    _known: dict[tuple[tuple[str, ...], float], GpuHours] = field(default_factory=dict)
    _queues: dict[tuple[int, ...], Sequence[Ledger | Verifications]] = field(default_factory=dict)
    """Of all studies that share a limit, by their numbers."""

    def of(self, opened: OpenStudy, policy: SearchPolicy) -> GpuHours | None:
        found = GpuHours.of(opened.database.engine, policy, opened.name)
        return None if found is None else self._known.setdefault(found.limit, found)

    def take_back(self, database: Database, limits: Iterable[GpuHours | None]) -> None:
        """Take back what dead workers held of all studies that share these limits. Where nobody
        else works at them, their grants would stay open, and everybody would wait for them.

        To be called often while there is nothing to claim (`Leases.confirmed`).

        Raises:
            DBAPIError, StorageInternalError: the database is away.
        """
        for hours in {each.names: each for each in limits if each is not None}.values():
            ids = hours.study_ids()
            if ids not in self._queues:
                ledgers = [Ledger(database, study_id) for study_id in ids]
                self._queues[ids] = [*ledgers, Verifications(database.engine, ids)]
            for queue in self._queues[ids]:
                queue.reap()
