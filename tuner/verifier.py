"""A worker that verifies: it claims planned runs and trains them on their fresh seeds, one device, exclusively."""

from __future__ import annotations

import dataclasses
import functools
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.devices import CpuCores, Gpu
from tuner.job import TrialJob, TrialRunner
from tuner.space import hyperparameters
from tuner.storage import TrialResult, VerificationRun
from tuner.storage.outbox import Outbox
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study import OpenStudy
from tuner.study.verification import verifications_of
from tuner.study.verified import stop_if_clear
from tuner.worker import ContextLostError, Places, Pulse, StopFlag
from tuner.worker.delivery import delivered
from tuner.worker.lease import KeptLease, lease_on
from tuner.worker.loop import IDLE_S, survived
from tuner.worker.pace import Pace
from tuner.worker.patience import Patience
from tuner.worker.places import deliver
from tuner.worker.presence import new_name, present
from tuner.worker.pulse import WAITING

if TYPE_CHECKING:
    from tuner.training import EpochRecord

_log = logging.getLogger(__name__)


class Verifier:
    """Makes the planned runs of `studies` on `device` through `run_trial`, in the plan's order, until none is left."""

    def __init__(
        self,
        studies: Sequence[OpenStudy],
        device: Gpu | CpuCores,
        run_trial: TrialRunner,
        *,
        name: str | None = None,
        stop: StopFlag | None = None,
        pulse: Pulse | None = None,
        places: Places | None = None,
    ) -> None:
        self._studies = {opened.study_id: opened for opened in studies}
        self._queue = verifications_of(studies)
        self._device = device
        self._run_trial = run_trial
        self.name = name or new_name()
        self._stop = stop or StopFlag()
        self._pulse = pulse or Pulse()
        self._places = places
        self._outboxes: dict[int, Outbox] = {}
        self._stored = Patience(studies, self.name, self._stop, self._pulse)
        self._results = 0
        """How many of them count."""

    def hand_back(self) -> None:
        """From another thread, when this one does not come to it: return whatever is claimed, and sign out.

        What has a result by now that is not stored yet is not returned, but finished.
        """
        if self._places is not None:
            deliver(self._studies.values(), self._places)
        self._queue.reap(worker=self.name, state="returned")
        for opened in self._studies.values():
            opened.roster.leave(self.name)

    def run(self) -> None:
        """Work until no planned run is left or the stop flag is set.

        Raises:
            UsageError: a study's times were measured on another device model.
            ContextLostError: the device needs a fresh process.
        """
        with present(list(self._studies.values()), self.name, self._device, self._stored, self._prepare):
            self._work()

    def _prepare(self, opened: OpenStudy) -> None:
        if self._places is not None:
            self._outboxes[opened.study_id] = Outbox(self._places.outbox, opened.key())
            deliver([opened], self._places)

    def _work(self) -> None:
        studies = list(self._studies.values())
        while not self._stop.is_set():
            self._stored(self._queue.reap, "a look for lost runs", until_stopped=True)
            self._stored(lambda: stop_if_clear(studies), "a look whether the answer is clear", until_stopped=True)
            take = functools.partial(self._queue.claim, self.name, token=uuid.uuid4().hex)
            run = self._stored(take, "a claim", until_stopped=True)
            if run is not None:
                self._run_one(run)
            elif self._stored(self._queue.counts, "what is left", until_stopped=True).left == 0:
                return
            else:
                # Others make the last runs: one of them may still come back.
                self._pulse.phase(WAITING)
                self._stop.wait(IDLE_S)

    def _run_one(self, run: VerificationRun) -> None:
        opened = self._studies[run.study_id]
        what = f"{opened.name} trial {run.trial_number} on seed {run.seed}"
        _log.info("verifying %s", what)
        self._report(opened, trial_number=run.trial_number, epoch=0)
        self._pulse.new_trial()
        with lease_on(run, self._queue, opened.roster, self.name, self._stop) as lease:
            # It is kept until the result is stored: an outage at the end must not cost the training.
            result, context_lost = self._train(opened, run, lease)
            if result is None:
                self._stored(lambda: self._queue.give_back(run), "a run handed back")
                _log.info("%s handed back", what)
                return
            finish = functools.partial(self._queue.finish, run, result)
            outbox = self._outboxes.get(run.study_id)
            counted = delivered(outbox, run.ticket, result, lambda: self._stored(finish, "a result"))
        _log.info("%s %s: %s", what, "done" if counted else "not counted", result.values or result.state.name)
        self._report(opened)
        if context_lost:
            raise ContextLostError(str(result.attributes.get("failure")), results=self._results)
        self._results += counted

    def _report(
        self,
        opened: OpenStudy,
        *,
        trial_number: int | None = None,
        epoch: int | None = None,
        val_loss: float | None = None,
    ) -> bool:
        """For who watches; whether the database took it. What it does not take now is not kept."""
        try:
            opened.roster.report(self.name, trial_number=trial_number, epoch=epoch, val_loss=val_loss)
        except DATABASE_FAILURES:
            return False
        return True

    def _train(self, opened: OpenStudy, run: VerificationRun, lease: KeptLease) -> tuple[TrialResult | None, bool]:
        policy = self._stored(opened.policy, "the study's policy", until_stopped=True)
        pace = Pace()

        def on_epoch(record: EpochRecord, repeat: int) -> None:
            del repeat
            if pace.due():
                self._pulse.phase("database")
                taken = self._report(
                    opened, trial_number=run.trial_number, epoch=record.epoch, val_loss=record.val_loss
                )
                pace.wrote(well=taken)
            self._pulse.epoch_ended(record.elapsed_s)

        job = TrialJob(
            study=opened.name,
            definition=opened.definition,
            # A verification is trained to its own end, in one go: its time is the point.
            policy=dataclasses.replace(policy, prune=False, checkpoint_s=0.0),
            number=run.trial_number,
            hyperparameters=hyperparameters(run.params),
            device=self._device,
            on_epoch=on_epoch,
            should_stop=lease.should_stop,
            on_phase=self._pulse.phase,
            seed=run.seed,
        )
        return survived(self._run_trial, job, seed=run.seed)
