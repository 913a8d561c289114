"""The worker's loop: claim a piece of work, have it trained, record its result; one device.

Whatever the work is, its claim has one life: claimed, its lease kept alive, trained, its result
delivered through the outbox and finished, or handed back. A worker whose trainings run in a process
of their own has two of them at a time, in two lanes: one trains, the next is made ready.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import platform
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from optuna.trial import TrialState
from sqlalchemy import Engine

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.files.checkout import head
from tuner.files.kinds import In
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.dialects import clock_skew_s
from tuner.storage.queue.leased_queue import Queue, Ticket
from tuner.storage.queue.roster import HostFacts, Roster, clock_in_words, newcomer_in_words
from tuner.storage.records import TrialResult
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.trial.job import TrainerLostError, TrialJob, TrialRunner, Waited, failed, survived
from tuner.version import __version__
from tuner.worker.device_lease import DeviceLease
from tuner.worker.paths import Retry, WorkerPaths, deliver, forget_trials, tidy_up
from tuner.worker.process import WAITING, ContextLostError, Heartbeat, StopFlag
from tuner.worker.trial_source import TrialSource
from tuner.worker.work_source import Piece, Source, Turn, WorkerContext, torch_version

# A training that has its device alone among all workers of the database, or else says so.


TIMED = (TrialState.COMPLETE, TrialState.PRUNED)
"""Results that depend on the clock."""
Train = Callable[[TrialJob], TrialResult | None]
_log = logging.getLogger(__name__)


def trained_alone(lease: DeviceLease | None, job: TrialJob, train: Train) -> TrialResult | None:
    """The job's result, trained under the lease; None when it was interrupted.

    A training that loses the lease is stopped where it is seen in time. It begins anew then, as
    does one whose timing was spoiled, as often as the study repeats such timings; the last one
    counts, and says what was wrong with it.
    """
    waited = Waited(job.on_wait)
    job = dataclasses.replace(job, on_wait=waited.told)
    if lease is None:
        return _said(train(job), waited, "")
    runs: list[TrialResult] = []
    stop = job.should_stop

    def should_stop() -> StopReason | None:
        return StopReason.INTERRUPTED if lease.is_lost() else stop()

    for _ in range(1 + job.policy.reruns):
        waited.told(True)
        with lease.taken(give_up=lambda: stop() is not None) as mine:
            waited.told(False)
            if not mine:
                break
            began, before_s = time.perf_counter(), waited.seconds
            result = train(dataclasses.replace(job, should_stop=should_stop))
            took_s = time.perf_counter() - began - (waited.seconds - before_s)
            if job.may_take_s is not None:
                job = dataclasses.replace(job, may_take_s=job.may_take_s - took_s)
            why = lease.why_not_alone()
        result = _said(result, waited, why)
        if result is not None:
            runs.append(result)
        if not why or (result is not None and result.state not in TIMED):
            return None if result is None else _with_all(runs)
        if job.may_take_s is not None and job.may_take_s <= 0:
            break
        _log.warning("trial %d was not alone on its device: %s", job.number, why)
        if job.checkpoints is not None and job.seed is None:
            forget_trials(job.checkpoints, {job.number})  # their clock went on beside another's
    return _with_all(runs) if runs else None


def _said(result: TrialResult | None, waited: Waited, why: str) -> TrialResult | None:
    """The result with all that was waited so far, and why its timing is not to be trusted."""
    if result is None:
        return None
    if waited.is_known:
        result = result.noting(wait_s=waited.seconds)
    if not why or result.state not in TIMED:
        return result
    said = "; ".join(filter(None, (result.recorded.contamination, why)))
    return result.noting(contaminated=True, contamination=said)


def _with_all(runs: list[TrialResult]) -> TrialResult:
    """The last one, with the clocks of all."""
    if len(runs) == 1:
        return runs[0]
    return runs[-1].noting(timings=[run.recorded.kept_in(In.TIMINGS) for run in runs])


# Two lanes of one worker: while the trial of one trains, the other stores what came before and
# makes the next trial ready.


LOOK_S = 0.02
"""How often who waits for its turn looks whether it shall still wait."""


class DeviceTurn:
    """The device's next training is that of whoever waited first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self, give_up: Callable[[], object]) -> Iterator[bool]:
        """Train in here; False where `give_up` said so before it came to that."""
        while not self._lock.acquire(timeout=LOOK_S):
            if give_up():
                yield False
                return
        try:
            yield not give_up()  # the training before may have been the last
        finally:
            self._lock.release()

    @property
    def is_taken(self) -> bool:
        """Whether a training is under way."""
        return self._lock.locked()


# The lease on a piece of work, kept alive by a thread while the work is done.


Held = TypeVar("Held")


@dataclass(slots=True)
class KeptLease:
    """The lease of `worker` on what it `held` of `queue`, a trial or a run, which is renewed now
    and then as long as the context lasts.

    Each time the `roster` hears that the worker lives, and what others lost is taken back: no
    supervisor need be there, and a training may take hours.
    """

    held: Ticket
    queue: Queue[Any]
    roster: Roster
    worker: str
    stop: StopFlag
    had_s: Callable[[], float]
    """How long it has had its device."""
    _lost: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    def should_stop(self) -> StopReason | None:
        """Whether a signal came, or somebody else has the work by now:
        read between two training steps.
        """
        return StopReason.INTERRUPTED if self.stop.is_set() or self._lost.is_set() else None

    def _keep(self) -> None:
        while not self._ended.wait(self.queue.heartbeat_s):
            try:
                if not self.queue.renew(self.held, self.had_s()):
                    self._lost.set()
                    return
                self.roster.report(self.worker)
                self.queue.reap()
            except DATABASE_FAILURES:
                _log.warning("the database is away; the lease could not be renewed")
            except Exception:  # noqa: BLE001 - its end would cost the work its lease, and nobody would hear of it
                _log.exception("the thread that keeps the lease goes on after a failure")

    def __enter__(self) -> Self:
        threading.Thread(target=self._keep, name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


# What is known of the host that a worker runs on.


_REVISION_DIGITS = 12


def host_facts(engine: Engine) -> HostFacts:
    """Those of this host. Asks the database for its time, and imports nothing.

    Raises:
        DBAPIError: the database is away.
    """
    revision = head()  # where it runs from a checkout
    return HostFacts(
        torch_version=torch_version(),
        tuner_version="+".join(filter(None, (__version__, (revision or "")[:_REVISION_DIGITS]))),
        clock_skew_s=round(clock_skew_s(engine), 3),
    )


def new_name() -> str:
    """A worker's name that no other has: containers share process ids,
    and host names too where one gives them.
    """
    return f"{platform.node()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"


IDLE_S, LONGEST_IDLE_S = 1.0, 10.0
"""Between two looks of a worker that finds nothing to do: a second, then ever longer."""
SHARE_OF_IDLE = 0.1
"""It looks again after this share of the time that it has been idle for. So the end is noticed
soon, and hundreds of workers that wait for the last trial leave the database alone."""


class Worker:
    """Does the work of `studies` on `device` through `run_trial`, until there is none left.

    Without another `source` that are their trials, until all budgets are filled. With two `lanes`,
    the next piece of work is made ready while one trains, which is then to need no time of this
    process.
    With a `lease`, which stays the caller's, it trains only while it holds that.
    """

    def __init__(
        self,
        studies: Sequence[OpenStudy],
        device: Gpu | CpuCores,
        run_trial: TrialRunner,
        *,
        source: Callable[[WorkerContext], Source] = TrialSource,
        name: str | None = None,
        stop: StopFlag | None = None,
        heartbeat: Heartbeat | None = None,
        paths: WorkerPaths | None = None,
        lanes: int = 1,
        lease: DeviceLease | None = None,
    ) -> None:
        self.name = name or new_name()
        self._stop = stop or StopFlag()
        self._heartbeat = heartbeat or Heartbeat()
        self._run_trial = run_trial
        self._stored = Retry(studies, self.name, self._stop, self._heartbeat)
        self._context = WorkerContext(
            studies, device, self.name, self._stored, self._heartbeat, paths
        )
        self._source = source(self._context)
        self._results = 0
        """How many trainings left the device as it was: counted before the other lane's may end."""
        self._lanes = lanes
        self._lease = lease
        self._desk = threading.Lock()
        """Where one lane at a time works; whoever does leaves it while it waits or trains."""
        self._turn = DeviceTurn()
        self._news = threading.Event()
        """Wakes the lane that found nothing to do once the other has delivered something."""

    def run(self) -> None:
        """Work until its source has none left, or the stop flag is set.

        Raises:
            UsageError: a study is bound to another device model.
            ContextLostError: the device needs a fresh process.
            TrainerLostError: the process that trains has ended; what it trained is taken back.
            DataGoneError: the data is there no more; what it trained is to be handed back.
        """
        context = self._context
        try:
            ask = functools.partial(host_facts, context.studies[0].database.engine)
            facts = self._stored(ask, "a look at the database's clock", until_stopped=True)
            if (line := clock_in_words(facts, "this host")) is not None:
                _log.warning("%s", line)
            for opened in context.studies:
                sign_in = functools.partial(self._sign_in, opened, facts)
                self._stored(sign_in, "a worker's registration", until_stopped=True)
            self._in_all_lanes()
        except TrainerLostError:
            # The other lane has handed back what it held: this is held against the trial.
            for queue in self._source.queues:
                queue.reap(worker=self.name, state="lost")
            raise
        finally:
            for opened in context.studies:
                with contextlib.suppress(*DATABASE_FAILURES):  # its silence will tell
                    opened.roster.leave(self.name)

    def hand_back(self) -> None:
        """From another thread, when this one does not come to it:
        return whatever is claimed, and sign out.

        What has a result by now that is not stored yet is not returned, but finished.
        """
        if self._context.paths is not None:
            deliver(self._context.studies, self._context.paths)
        for queue in self._source.queues:
            queue.reap(worker=self.name, state="returned")
        for opened in self._context.studies:
            opened.roster.leave(self.name)
        if self._lease is not None:
            self._lease.close()

    def _sign_in(self, opened: OpenStudy, facts: HostFacts) -> None:
        context, device = self._context, self._context.device
        context.keys[opened.name] = opened.key()
        if context.paths is not None:
            tidy_up(opened, context.paths)
        self._source.sign_in(opened)
        opened.bind_device_model(device.model)
        others = [each for _, each in opened.roster.hosts(but=self.name)]
        for line in newcomer_in_words(opened.name, facts, others):
            _log.warning("%s", line)
        mine = {"host": platform.node(), "pid": os.getpid()}
        mine |= {"device": device.label, "device_uuid": device.uuid[:120]}  # of several, the first
        opened.roster.join(self.name, facts=facts, **mine)

    def _in_all_lanes(self) -> None:
        """Work in several threads, the first of which is this one. The first failure of any is
        everybody's: the others stop, and it is raised once all have ended.
        """
        failures: list[BaseException] = []

        def lane() -> None:
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for all
                failures.append(error)
                self._stop.set()

        others = [threading.Thread(target=lane, daemon=True) for _ in range(1, self._lanes)]
        for thread in others:
            thread.start()
        lane()
        for thread in others:
            thread.join()
        if failures:
            raise failures[0]

    def _work(self) -> None:
        with self._desk:
            idle_since: float | None = None
            while not self._stop.is_set():
                for queue in self._source.queues:
                    self._stored(queue.reap, "a look for lost work", until_stopped=True)
                turns = self._source.in_turn()
                if not turns:
                    return
                if any(self._take(turn) for turn in turns if not turn.all_taken):
                    idle_since = None
                    continue
                now = time.monotonic()
                idle_since = now if idle_since is None else idle_since
                self._idle(min(max(IDLE_S, SHARE_OF_IDLE * (now - idle_since)), LONGEST_IDLE_S))

    @contextlib.contextmanager
    def _away_from_the_desk(self) -> Iterator[None]:
        """By who works there: leave it to the other lane meanwhile."""
        self._desk.release()
        try:
            yield
        finally:
            self._heartbeat.phase("the next thing to do")  # before it may have to wait
            self._desk.acquire()

    def _idle(self, seconds: float) -> None:
        """Others do what is left: one of them may still come back."""
        self._heartbeat.phase(WAITING)
        deadline = time.monotonic() + seconds
        with self._away_from_the_desk():
            while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
                if self._news.wait(min(LOOK_S, left)):
                    self._news.clear()
                    break
        if not self._turn.is_taken:
            self._source.idle()
            if self._lease is not None:  # whoever does what is left may wait for the device
                self._lease.look()

    def _take(self, turn: Turn[Held]) -> bool:
        """Claim a piece of work and carry it to its end; False when there was none."""
        claim = functools.partial(turn.queue.claim, self.name, token=uuid.uuid4().hex)
        held = self._stored(claim, "a claim", until_stopped=True)
        if held is None:
            return False
        self._carry_through(turn.queue, turn.take_up(held))
        return True

    def _carry_through(self, queue: Queue[Any], piece: Piece) -> None:
        self._heartbeat.new_trial()
        ticket, roster = piece.ticket, piece.opened.roster
        with KeptLease(ticket, queue, roster, self.name, self._stop, piece.had_s) as lease:
            # It is kept until the result is stored: an outage at the end must not cost the
            # training.
            try:
                if not piece.prepare():
                    return  # somebody else has it by now
            except UnfitConfigurationError as error:
                refused = failed(StopReason.ERROR, str(error), self._context.device, piece.seed)
                self._deliver(queue, piece, refused)
                return
            job = piece.job(lease.should_stop)
            _log.info("%s: %s", piece.what, job.hyperparameters.as_dict())
            with self._away_from_the_desk():
                result = self._trained(piece, job)
            if result is None:
                piece.running.deliver()
                self._stored(lambda: queue.give_back(ticket, piece.had_s()), "work handed back")
                _log.info("%s handed back", piece.what)
                return
            result = piece.recorded(result)
            self._deliver(queue, piece, result)
        if not self._turn.is_taken:
            self._report(piece.opened, trial_number=None, epoch=None)
        self._news.set()
        if result.recorded.context_lost:
            raise ContextLostError(str(result.recorded.failure), results=self._results)

    def _trained(self, piece: Piece, job: TrialJob) -> TrialResult | None:
        """The job's result, once it is its turn; None when it was interrupted."""
        number = piece.running.trial_number
        begun = functools.partial(self._report, piece.opened, trial_number=number, epoch=0)
        if self._lanes > 1:  # beside the training, whose process has the job by then
            job = dataclasses.replace(job, on_begun=begun)
        with self._turn.taken(job.should_stop) as mine:
            if not mine or not piece.may_begin():
                return None
            if self._lanes == 1:
                begun()
            piece.begins()
            try:
                train = functools.partial(survived, self._run_trial, seed=piece.seed)
                result = trained_alone(self._lease, piece.granted(job), train)
            except BaseException:
                self._stop.set()  # before the other lane's turn
                raise
            piece.trained()
            if result is not None:
                if result.recorded.context_lost:
                    self._stop.set()
                else:
                    self._results += 1
        if self._lease is not None:  # now that the other lane may train
            self._lease.look()
        return result

    def _deliver(self, queue: Queue[Any], piece: Piece, result: TrialResult) -> bool:
        """Store a result, on local disk first, where it outlives this process meanwhile. True when
        it counts.

        Raises:
            DBAPIError, StorageInternalError: the database stayed away; the result stays on disk.
        """
        running, outbox = piece.running, piece.running.outbox
        running.deliver()
        running.spill()
        try:
            if outbox is not None:
                outbox.put_result(piece.ticket, result)
        except OSError as error:
            _log.warning("a result is on no local disk until the database has it: %s", error)
        finish = functools.partial(queue.finish, piece.ticket, result)
        counted = self._stored(finish, "a result")
        if outbox is not None:
            outbox.remove_result(piece.ticket)
        running.deliver()
        if counted:
            piece.counted()
        came = result.values or result.recorded.failure or ""
        how = "done" if counted else "not counted"
        _log.info("%s %s: %s %s", piece.what, how, result.state.name, came)
        return counted

    def _report(self, opened: OpenStudy, *, trial_number: int | None, epoch: int | None) -> None:
        """For who watches: no reason to end a worker when the database is away just now."""
        with contextlib.suppress(*DATABASE_FAILURES):
            ended = {"val_loss": None, "gpu_busy": None}
            opened.roster.report(self.name, trial_number=trial_number, epoch=epoch, **ended)
