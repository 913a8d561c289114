"""A worker that verifies: it claims planned runs and trains them on their fresh seeds, one device, exclusively."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.job import TrialJob, TrialRunner
from tuner.space import hyperparameters
from tuner.storage import TrialResult, VerificationRun, Verifications
from tuner.storage.retry import DATABASE_FAILURES, persistently
from tuner.study import OpenStudy
from tuner.study.verification import verifications_of
from tuner.study.verified import stop_if_clear
from tuner.worker import ContextLostError, Pulse, StopFlag
from tuner.worker.loop import IDLE_S, new_name, survived
from tuner.worker.pulse import WAITING

if TYPE_CHECKING:
    from tuner.training import EpochRecord

REPORT_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A run at work: a thread keeps its lease, and who watches sees its epochs."""

    queue: Verifications
    opened: OpenStudy
    worker: str
    run: VerificationRun
    stop: StopFlag
    pulse: Pulse
    lost: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _reported: float = 0.0
    _elapsed_s: float = 0.0

    def should_stop(self) -> StopReason | None:
        return StopReason.INTERRUPTED if self.stop.is_set() or self.lost.is_set() else None

    def on_epoch(self, record: EpochRecord, repeat: int) -> None:
        del repeat
        epoch_s = record.elapsed_s - (self._elapsed_s if record.elapsed_s >= self._elapsed_s else 0.0)
        self._elapsed_s = record.elapsed_s
        if time.monotonic() - self._reported >= REPORT_S:
            self._reported = time.monotonic()
            self.pulse.phase("database")
            with contextlib.suppress(*DATABASE_FAILURES):
                self.opened.roster.report(
                    self.worker, trial_number=self.run.trial_number, epoch=record.epoch, val_loss=record.val_loss
                )
        self.pulse.training(epoch_s)

    def keep_lease(self) -> None:
        while not self._ended.wait(self.queue.heartbeat_s):
            try:
                if not self.queue.renew(self.run):
                    self.lost.set()
                    return
                self.opened.roster.report(self.worker)
            except DATABASE_FAILURES:
                _log.warning("the database is away; the lease could not be renewed")

    def __enter__(self) -> Self:
        threading.Thread(target=self.keep_lease, name="lease", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()


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
    ) -> None:
        self._studies = {opened.study_id: opened for opened in studies}
        self._queue = verifications_of(studies)
        self._device = device
        self._run_trial = run_trial
        self.name = name or new_name()
        self._stop = stop or StopFlag()
        self._pulse = pulse or Pulse()

    def hand_back(self) -> None:
        """From another thread, when this one does not come to it: return whatever is claimed, and sign out."""
        self._queue.reap(worker=self.name, state="returned")
        for opened in self._studies.values():
            opened.roster.leave(self.name)

    def run(self) -> None:
        """Work until no planned run is left or the stop flag is set.

        Raises:
            UsageError: a study's times were measured on another device model.
            ContextLostError: the device needs a fresh process.
        """
        for opened in self._studies.values():
            opened.bind_device_model(self._device.model)
            opened.roster.join(
                self.name,
                host=platform.node(),
                pid=os.getpid(),
                device=self._device.label,
                device_uuid=self._device.uuid,
            )
        try:
            self._work()
        finally:
            for opened in self._studies.values():
                opened.roster.leave(self.name)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._persist(self._queue.reap, "a look for lost runs")
            self._persist(lambda: stop_if_clear(list(self._studies.values())), "a look whether the answer is clear")
            run = self._persist(functools.partial(self._queue.claim, self.name, token=uuid.uuid4().hex), "a claim")
            if run is not None:
                self._run_one(run)
            elif self._persist(self._queue.counts, "what is left").left == 0:
                return
            else:
                # Others make the last runs: one of them may still come back.
                self._pulse.phase(WAITING)
                self._stop.wait(IDLE_S)

    def _persist(self, action: Any, what: str) -> Any:
        def give_up() -> bool:
            self._pulse.phase("database")
            return self._stop.is_set()

        self._pulse.phase("database")
        return persistently(action, what, give_up=give_up)

    def _run_one(self, run: VerificationRun) -> None:
        opened = self._studies[run.study_id]
        what = f"{opened.name} trial {run.trial_number} on seed {run.seed}"
        _log.info("verifying %s", what)
        with contextlib.suppress(*DATABASE_FAILURES):
            opened.roster.report(self.name, trial_number=run.trial_number, epoch=0, val_loss=None)
        self._pulse.new_trial()
        with _Held(self._queue, opened, self.name, run, self._stop, self._pulse) as held:
            # The lease is kept until the result is stored: an outage at the end must not cost the training.
            result, context_lost = self._train(opened, run, held)
            if result is None:
                persistently(lambda: self._queue.give_back(run), "a run handed back")
                _log.info("%s handed back", what)
                return
            counted = persistently(lambda: self._queue.finish(run, result), "a result")
        _log.info("%s %s: %s", what, "done" if counted else "not counted", result.values or result.state.name)
        with contextlib.suppress(*DATABASE_FAILURES):
            opened.roster.report(self.name, trial_number=None, epoch=None, val_loss=None)
        if context_lost:
            raise ContextLostError(str(result.attributes.get("failure")))

    def _train(self, opened: OpenStudy, run: VerificationRun, held: _Held) -> tuple[TrialResult | None, bool]:
        policy = self._persist(opened.policy, "the study's policy")
        job = TrialJob(
            study=opened.name,
            definition=opened.definition,
            # A verification is trained to its own end, in one go: its time is the point.
            policy=dataclasses.replace(policy, prune=False, checkpoint_s=0.0),
            number=run.trial_number,
            hyperparameters=hyperparameters(run.params),
            device=self._device,
            on_epoch=held.on_epoch,
            should_stop=held.should_stop,
            on_phase=self._pulse.phase,
            seed=run.seed,
        )
        return survived(self._run_trial, job, seed=run.seed)
