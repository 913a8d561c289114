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
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.queue.protocol import Queue
from tuner.storage.records import TrialResult
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob, TrialRunner, failed
from tuner.trial.survival import TrainerLostError, survived
from tuner.worker.alone import trained_alone
from tuner.worker.delivery import delivered
from tuner.worker.device_lease import DeviceLease
from tuner.worker.heartbeat import WAITING, Heartbeat
from tuner.worker.lanes import Desk, DeviceTurn, Lanes, News
from tuner.worker.lease_renewal import lease_on
from tuner.worker.outages import Retry
from tuner.worker.paths import WorkerPaths, deliver, tidy_up
from tuner.worker.registration import new_name, registered
from tuner.worker.restart import ContextLostError
from tuner.worker.stop import StopFlag
from tuner.worker.trial_source import TrialSource
from tuner.worker.work_source import Piece, Source, Turn, WorkerContext

IDLE_S, LONGEST_IDLE_S = 1.0, 10.0
"""Between two looks of a worker that finds nothing to do: a second, then ever longer."""
SHARE_OF_IDLE = 0.1
"""It looks again after this share of the time that it has been idle for. So the end is noticed
soon, and hundreds of workers that wait for the last trial leave the database alone."""
Held = TypeVar("Held")
_log = logging.getLogger(__name__)


class Worker:
    """Does the work of `studies` on `device` through `run_trial`, until there is none left.

    Without other `sources` that are their trials, until all budgets are filled. Of several sources,
    the next one is asked when those before it have nothing to give. With two `lanes`, the next
    piece of work is made ready while one trains, which is then to need no time of this process.
    With a `lease`, which stays the caller's, it trains only while it holds that.
    """

    def __init__(
        self,
        studies: Sequence[OpenStudy],
        device: Gpu | CpuCores,
        run_trial: TrialRunner,
        *,
        sources: Sequence[Callable[[WorkerContext], Source]] = (TrialSource,),
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
        self._sources = [source(self._context) for source in sources]
        self._results = 0
        """How many of them count."""
        self._lanes = lanes
        self._lease = lease
        self._desk = Desk(lambda: self._heartbeat.phase("the next thing to do"))
        self._turn = DeviceTurn()
        self._news = News()

    def run(self) -> None:
        """Work until no source has any left, or the stop flag is set.

        Raises:
            UsageError: a study is bound to another device model.
            ContextLostError: the device needs a fresh process.
            TrainerLostError: the process that trains has ended; what it trained is taken back.
        """
        context = self._context
        with registered(context.studies, self.name, context.device, self._stored, self._sign_in):
            try:
                Lanes(self._lanes, self._stop.set).run(self._work)
            except TrainerLostError:
                # The other lane has handed back what it held: this is held against the trial.
                for queue in self._queues():
                    queue.reap(worker=self.name, state="lost")
                raise

    def hand_back(self) -> None:
        """From another thread, when this one does not come to it:
        return whatever is claimed, and sign out.

        What has a result by now that is not stored yet is not returned, but finished.
        """
        if self._context.paths is not None:
            deliver(self._context.studies, self._context.paths)
        for queue in self._queues():
            queue.reap(worker=self.name, state="returned")
        for opened in self._context.studies:
            opened.roster.leave(self.name)
        if self._lease is not None:
            self._lease.close()

    def _queues(self) -> list[Queue[object]]:
        return [queue for source in self._sources for queue in source.queues]

    def _sign_in(self, opened: OpenStudy) -> None:
        self._context.keys[opened.name] = opened.key()
        if self._context.paths is not None:
            tidy_up(opened, self._context.paths)
        for source in self._sources:
            source.sign_in(opened)

    def _work(self) -> None:
        with self._desk.taken():
            idle_since: float | None = None
            while not self._stop.is_set():
                for queue in self._queues():
                    self._stored(queue.reap, "a look for lost work", until_stopped=True)
                turns = [turn for source in self._sources for turn in source.in_turn()]
                if not turns:
                    return
                if any(self._take(turn) for turn in turns if not turn.all_taken):
                    idle_since = None
                    continue
                now = time.monotonic()
                idle_since = now if idle_since is None else idle_since
                self._idle(min(max(IDLE_S, SHARE_OF_IDLE * (now - idle_since)), LONGEST_IDLE_S))

    def _idle(self, seconds: float) -> None:
        """Others do what is left: one of them may still come back."""
        self._heartbeat.phase(WAITING)
        with self._desk.left():
            self._news.wait(seconds, give_up=self._stop.is_set)
        if not self._turn.is_taken:
            for source in self._sources:
                source.idle()
            if self._lease is not None:  # whoever does what is left may wait for the device
                self._lease.look()

    def _take(self, turn: Turn[Held]) -> bool:
        """Claim a piece of work and carry it to its end; False when there was none."""
        claim = functools.partial(turn.queue.claim, self.name, token=uuid.uuid4().hex)
        held = self._stored(claim, "a claim", until_stopped=True)
        if held is None:
            return False
        self._carry_through(turn.queue, held, turn.take_up(held))
        return True

    def _carry_through(self, queue: Queue[Held], held: Held, piece: Piece) -> None:
        self._heartbeat.new_trial()
        kept = lease_on(held, queue, piece.opened.roster, self.name, self._stop, beside=piece.keep)
        with kept as lease:
            # It is kept until the result is stored: an outage at the end must not cost the
            # training.
            try:
                if not piece.prepare():
                    return  # somebody else has it by now
            except UnfitConfigurationError as error:
                refused = failed(StopReason.ERROR, str(error), self._context.device, piece.seed)
                self._deliver(queue, held, piece, refused)
                return
            job = piece.job(lease.should_stop)
            _log.info("%s: %s", piece.what, job.hyperparameters.as_dict())
            with self._desk.left():
                result = self._trained(piece, job)
            if result is None:
                piece.running.deliver()
                self._stored(lambda: queue.give_back(held), "work handed back")
                _log.info("%s handed back", piece.what)
                return
            result = piece.recorded(result)
            counted = self._deliver(queue, held, piece, result)
        if not self._turn.is_taken:
            self._report(piece.opened, trial_number=None, epoch=None)
        self._news.tell()
        if result.recorded.context_lost:
            raise ContextLostError(str(result.recorded.failure), results=self._results)
        self._results += counted

    def _trained(self, piece: Piece, job: TrialJob) -> TrialResult | None:
        """The job's result, once it is its turn; None when it was interrupted."""
        begun = functools.partial(
            self._report, piece.opened, trial_number=piece.running.trial_number, epoch=0
        )
        if self._lanes > 1:  # beside the training, whose process has the job by then
            job = dataclasses.replace(job, on_begun=begun)
        with self._turn.taken(job.should_stop) as mine:
            if not mine or not piece.may_begin():
                return None
            if self._lanes == 1:
                begun()
            piece.begins()
            try:
                result = trained_alone(
                    self._lease,
                    piece.granted(job),
                    lambda job: survived(self._run_trial, job, seed=piece.seed),
                )
            except BaseException:
                self._stop.set()  # before the other lane's turn
                raise
            piece.trained()
            if result is not None and result.recorded.context_lost:
                self._stop.set()
        if self._lease is not None:  # now that the other lane may train
            self._lease.look()
        return result

    def _deliver(self, queue: Queue[Held], held: Held, piece: Piece, result: TrialResult) -> bool:
        """Store a result, on local disk first: it outlives this process. True when it counts."""
        running = piece.running
        running.deliver()
        running.spill()
        finish = functools.partial(queue.finish, held, result)
        counted = delivered(
            running.outbox, piece.ticket, result, lambda: self._stored(finish, "a result")
        )
        running.deliver()
        if counted:
            piece.counted()
        _log.info(
            "%s %s: %s %s",
            piece.what,
            "done" if counted else "not counted",
            result.state.name,
            result.values or result.recorded.failure or "",
        )
        return counted

    def _report(self, opened: OpenStudy, *, trial_number: int | None, epoch: int | None) -> None:
        """For who watches: no reason to end a worker when the database is away just now."""
        with contextlib.suppress(*DATABASE_FAILURES):
            opened.roster.report(self.name, trial_number=trial_number, epoch=epoch, val_loss=None)
