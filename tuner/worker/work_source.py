"""Where a worker's work comes from: queues whose turn it is, what to do with what they give, and
the epochs of the trial at work.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.config import Backend, EpochRecord, Hyperparameters, StopReason, Value
from tuner.devices import CpuCores, Gpu
from tuner.devices.backend_rules import BackendChoice
from tuner.files.plain import UNREADABLE, harmless_data, read_json
from tuner.models.names import builtin_names
from tuner.spec.objectives import violations
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.queue.verifications import Verifications
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.storage.schema import backend_choices
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob, Waited, Watched
from tuner.worker.paths import Outbox, Retry, WorkerPaths
from tuner.worker.process import Heartbeat

# When an epoch is written: every second, less often where the database is slow, and ever less
# often while it is away.


REPORT_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries of a database that is away:
each may take seconds, in which nothing is trained."""
MOST_OF_TIME = 0.05
"""A worker spends this share of its time on such writes at most: where hundreds of workers share a
database, that leaves it time for claims and results."""


@dataclass(slots=True)
class ReportInterval:
    """Says when the next write is due, by how the last ones went."""

    _next: float = 0.0
    _failures: int = 0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def wrote(self, *, well: bool, took_s: float = 0.0) -> None:
        self._failures = 0 if well else self._failures + 1
        pause_s = max(REPORT_S * 4**self._failures, took_s / MOST_OF_TIME)
        self._next = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)


BUFFERED_AT_MOST = 5000
"""Epochs kept in memory while it is away; more go to local files."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunningTrial:
    """One trial at work, or one run of it that verifies: its epochs are told off the clock."""

    opened: OpenStudy
    worker: str
    trial_number: int
    claim: Claim | None = None
    """Whose curve is kept in the database; None for a verification run, of which none is."""
    watched: Watched | None = None
    """What decides after each epoch whether to prune; None where the trial is not to be pruned."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    outbox: Outbox | None = None
    _report_interval: ReportInterval = field(default_factory=ReportInterval)
    _latest: EpochRecord | None = None
    """The last epoch that nobody was told of."""
    _latest_loss: float | None = None
    """Of the last epoch of its training that was validated."""
    _buffer: dict[tuple[int, int], EpochRow] = field(default_factory=dict)
    """By seed and epoch: a run that is made again takes the place of the first one's curve."""
    _spilled: bool = False

    def on_epoch(self, record: EpochRecord, repeat: int) -> None:
        self._keep(record, repeat)
        if self._report_interval.due():
            self.deliver()
        self.heartbeat.epoch_ended(record.elapsed_s)

    def on_curve(self, records: Sequence[EpochRecord], repeat: int) -> None:
        """Epochs that `on_epoch` did not hear of, or not last: this attempt's curve is to be that
        of what counts.
        """
        for record in records:
            self._keep(record, repeat)
        self.heartbeat.clock_at(records[-1].elapsed_s if records else 0.0)

    def judged(self, result: TrialResult, policy: SearchPolicy) -> TrialResult:
        """The result with how far it is beyond the study's limits,
        and why it was pruned where it was.
        """
        recorded, constraints = result.recorded, dict(result.constraints)
        if result.values is not None:
            values = (result.values[0], result.values[1])
            constraints |= violations(policy, values, recorded)
        if recorded.stopped_by == StopReason.PRUNED and self.watched is not None:
            verdict = self.watched.verdict(recorded.epochs or 0)
            recorded = verdict.said_in(recorded) if verdict is not None else recorded
        return dataclasses.replace(result, recorded=recorded, constraints=constraints)

    def deliver(self) -> None:
        """Write what is new; what the database does not take now is kept,
        and tried again ever less often.
        """
        if self._latest is None and not self._buffer and not self._spilled:
            return
        self.heartbeat.phase("database")
        began = time.monotonic()
        try:
            if self.claim is not None:
                self._write_curve(self.claim)
            if self._latest is not None:
                seen = {"val_loss": self._latest_loss, "gpu_busy": self._latest.gpu_busy}
                at = {"trial_number": self.trial_number, "epoch": self._latest.epoch}
                self.opened.roster.report(self.worker, **at, **seen)
                self._latest = None
            self._report_interval.wrote(well=True, took_s=time.monotonic() - began)
        except DATABASE_FAILURES as error:
            self._report_interval.wrote(well=False)
            kept = f"; keeping {len(self._buffer)} epochs" if self.claim is not None else ""
            _log.warning("the database is away (%s)%s", cause_of(error), kept)
            if len(self._buffer) >= BUFFERED_AT_MOST:
                self.spill()

    def _write_curve(self, claim: Claim) -> None:
        opened = self.opened
        if self._spilled and self.outbox is not None:
            self.outbox.deliver(opened, only=claim)
            self._spilled = False
        opened.epochs.write(self.trial_number, claim.work_id, list(self._buffer.values()))
        self._buffer.clear()

    def spill(self) -> None:
        """Move what is buffered to local files, for whoever can deliver it later."""
        if not self._buffer or self.outbox is None or self.claim is None:
            return
        try:
            self.outbox.put_epochs(self.claim, list(self._buffer.values()))
        except OSError as error:
            if len(self._buffer) < 2 * BUFFERED_AT_MOST:
                return
            _log.warning(
                "%d epochs are lost: %s: %s", len(self._buffer), self.outbox.folder, error.strerror
            )
        else:
            self._spilled = True
        self._buffer.clear()

    def _keep(self, record: EpochRecord, repeat: int) -> None:
        self._latest = record
        if record.val_loss is not None or record.epoch == 1:
            self._latest_loss = record.val_loss
        if self.claim is None:
            return
        self._buffer.pop((repeat, record.epoch), None)  # the latest is to be the last
        self._buffer[repeat, record.epoch] = EpochRow(
            record.epoch,
            record.train_loss,
            record.val_loss,
            record.learning_rate,
            record.elapsed_s,
            repeat,
        )


# What `auto` came to in a study: measured once for each size of network, device and torch, and
# the same for all its workers.


@functools.cache
def torch_version() -> str | None:
    """That is installed here; None where none is."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


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
            again = "the backend is measured again"
            _log.warning("the database is away (%s); %s", cause_of(error), again)
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


_CHOICE = TypeAdapter(BackendChoice)


def _choice(text: object) -> BackendChoice | None:
    """What is stored may be a stranger's."""
    try:
        data = harmless_data(read_json(str(text)))
        found = _CHOICE.validate_python(data)
    except UNREADABLE:
        return None
    whole = {"backend", "reason", "epoch_s"} <= set(data)
    return found if whole and found.backend in MEASURED else None


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
        return self.paths.checkpoints(self.keys[opened.name])


class Piece(ABC):
    """A claimed piece of work, from its claim to its result."""

    _hyperparameters: Hyperparameters
    _policy: SearchPolicy
    _measured: MeasuredBackend
    _backend: BackendChoice | None

    def __init__(self, source: Source, opened: OpenStudy, ticket: Claim, seed: int) -> None:
        """Its result is delivered under the `ticket`, a failure is recorded with the `seed`."""
        self._context, self._grants = source.context, source.grants
        self._devices = len(source.context.device.devices)
        self._hours: GpuHours | None = None
        self._granted_s: float | None = None
        """Seconds that its training may take; None: as many as it needs."""
        self._waited = Waited()
        self._since: float | None = None
        self._had_s: float | None = None
        self.opened, self.ticket, self.seed = opened, ticket, seed
        self.what = f"trial {ticket.trial_number} of {opened.name}"
        """As a log calls it."""
        self.running = RunningTrial(
            opened,
            self._context.name,
            ticket.trial_number,
            claim=None if ticket.trial_id is None else ticket,
            heartbeat=self._context.heartbeat,
            outbox=self._context.outbox(opened),
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
        device = self._context.device
        self._measured = MeasuredBackend.of(self.opened, device, self._hyperparameters)
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

    def _is_granted(self, beside_s: float = 0.0) -> bool:
        """Whether its training may begin; its device has waited for `beside_s`. Without the
        database nobody knows: then it must not.
        """
        self._hours = self._grants.of(self.opened, self._policy)
        if self._hours is None:
            return True
        try:
            beside_s *= self._devices
            self._granted_s = self._hours.ask(self.ticket.token, self._grants.worker, beside_s)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s); nothing begins without it", cause_of(error))
            return False
        return self._granted_s is not None

    @abstractmethod
    def granted(self, job: TrialJob) -> TrialJob:
        """The job with what it may take, now that it may begin."""

    def begins(self) -> None:
        """It has the device; the training begins."""
        self._since = time.perf_counter()

    def trained(self) -> None:
        """The training has returned, with a result or without. Where the database does not hear of
        it, all that it was granted counts until the result is stored.
        """
        self._had_s = self.had_s()
        if self._hours is None:
            return
        try:
            self._hours.took(self.ticket.token, self._had_s)
        except DATABASE_FAILURES as error:
            _log.warning("the database is away (%s)", cause_of(error))

    def had_s(self) -> float:
        """Seconds that it has had its device for by now, its waits for it apart; of all of its
        devices together. Any thread may ask.
        """
        if self._had_s is not None or self._since is None:
            return self._had_s or 0.0
        had_s = max(0.0, time.perf_counter() - self._since - self._waited.seconds)
        return had_s * self._devices

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

    def __init__(self, context: WorkerContext) -> None:
        self.context, self.grants = context, GpuGrants(context.name)

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
