"""The worker's loop: claim a piece of work, have it trained, record its result; one device.

Whatever the work is, its claim has one life: claimed, its lease kept alive, trained, its result
delivered through the outbox and finished, or handed back.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import TypeVar

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import DeviceLockError
from tuner.models.fault import on_one_line
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.queue.protocol import Queue
from tuner.storage.records import TrialResult
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob, TrialRunner, failed
from tuner.worker.delivery import delivered
from tuner.worker.heartbeat import WAITING, Heartbeat
from tuner.worker.lease_renewal import lease_on
from tuner.worker.outages import Retry
from tuner.worker.paths import WorkerPaths, deliver, tidy_up
from tuner.worker.registration import new_name, registered
from tuner.worker.restart import ContextLostError, lost_context
from tuner.worker.stop import StopFlag
from tuner.worker.trial_source import TrialSource
from tuner.worker.work_source import Piece, Source, Turn, WorkerContext

IDLE_S = 1.0
Held = TypeVar("Held")
_log = logging.getLogger(__name__)


class Worker:
    """Does the work of `studies` on `device` through `run_trial`, until there is none left.

    Without other `sources` that are their trials, until all budgets are filled. Of several sources,
    the next one is asked when those before it have nothing to give.
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

    def run(self) -> None:
        """Work until no source has any left, or the stop flag is set.

        Raises:
            UsageError: a study is bound to another device model.
            ContextLostError: the device needs a fresh process.
        """
        context = self._context
        with registered(context.studies, self.name, context.device, self._stored, self._sign_in):
            self._work()

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

    def _queues(self) -> list[Queue[object]]:
        return [queue for source in self._sources for queue in source.queues]

    def _sign_in(self, opened: OpenStudy) -> None:
        self._context.keys[opened.name] = opened.key()
        if self._context.paths is not None:
            tidy_up(opened, self._context.paths)
        for source in self._sources:
            source.sign_in(opened)

    def _work(self) -> None:
        while not self._stop.is_set():
            for queue in self._queues():
                self._stored(queue.reap, "a look for lost work", until_stopped=True)
            turns = [turn for source in self._sources for turn in source.in_turn()]
            if not turns:
                return
            for turn in turns:
                if self._take(turn):
                    break
            else:
                # Others do what is left: one of them may still come back.
                self._heartbeat.phase(WAITING)
                self._stop.wait(IDLE_S)
                for source in self._sources:
                    source.idle()

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
        with lease_on(held, queue, piece.opened.roster, self.name, self._stop) as lease:
            # It is kept until the result is stored: an outage at the end must not cost the
            # training.
            try:
                if not piece.prepare():
                    return  # somebody else has it by now
            except UnfitConfigurationError as error:
                refused = failed(StopReason.ERROR, str(error), self._context.device, piece.seed)
                self._deliver(queue, held, piece, refused)
                return
            self._report(piece.opened, trial_number=piece.running.trial_number, epoch=0)
            job = piece.job(lease.should_stop)
            _log.info("%s: %s", piece.what, job.hyperparameters.as_dict())
            result, context_lost = survived(self._run_trial, job, seed=piece.seed)
            piece.trained()
            if result is None:
                piece.running.deliver()
                self._stored(lambda: queue.give_back(held), "work handed back")
                _log.info("%s handed back", piece.what)
                return
            result = piece.recorded(result)
            counted = self._deliver(queue, held, piece, result)
        self._report(piece.opened, trial_number=None, epoch=None)
        if context_lost:
            raise ContextLostError(str(result.recorded.failure), results=self._results)
        self._results += counted

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


def survived(
    run_trial: TrialRunner, job: TrialJob, *, seed: int
) -> tuple[TrialResult | None, bool]:
    """What `run_trial` returns, or the failure that it raised;
    and whether this process can train no more.
    """
    try:
        result = run_trial(job)
    except DeviceLockError:  # not this trial's: each would fail
        raise
    except Exception as error:  # noqa: BLE001 - whatever a model raises is that trial's result, not the worker's end
        _log.error("trial %d failed:\n%s", job.number, traceback.format_exc())
        message = on_one_line(error)
        return failed(StopReason.ERROR, message, job.device, seed), lost_context(error)
    return result, result is not None and bool(result.recorded.context_lost)
