"""Verification runs as work: in the plan's order, until none is left, the answer is clear, or the
time that they have is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence

from tuner.config import Hyperparameters, StopReason
from tuner.devices.backend_rules import BackendChoice
from tuner.search.suggest import UnfitConfigurationError
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.verifications import VerificationRun, Verifications, is_confirmation
from tuner.storage.retry import DATABASE_FAILURES
from tuner.trial.job import TrialJob
from tuner.verdict.early_looks import stop_if_clear
from tuner.verdict.round_allowances import in_time, skip_what_is_too_late
from tuner.verdict.verified import limits_of, verifications_of
from tuner.worker.running import RunningTrial
from tuner.worker.work_source import (
    GpuGrants,
    Granted,
    MeasuredBackend,
    Piece,
    Source,
    Turn,
    Waited,
    WorkerContext,
)


class VerificationSource(Source):
    """The planned runs of all the worker's studies, which are one queue: they are interleaved."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._queue = verifications_of(context.studies)
        self._took: dict[int, float] = {}
        self._grants = GpuGrants(context.name)

    @property
    def queues(self) -> Sequence[Verifications]:
        return (self._queue,)

    def in_turn(self) -> Sequence[Turn[VerificationRun]]:
        stored, studies = self._context.stored, self._context.studies
        clear = "a look whether the answer is clear"
        stored(lambda: stop_if_clear(studies), clear, until_stopped=True)
        late = "a look whether there is time for more"
        stored(lambda: skip_what_is_too_late(self._queue), late, until_stopped=True)
        left = stored(self._queue.counts, "what is left", until_stopped=True).left
        return (Turn(self._queue, self._take_up),) if left else ()

    def idle(self) -> None:
        stored, studies = self._context.stored, self._context.studies
        look = functools.partial(limits_of, studies)
        self._queue.limits = stored(look, "the device hours", until_stopped=True)
        limits = self._queue.limits.values()
        take_back = functools.partial(self._grants.take_back, studies[0].database, limits)
        stored(take_back, "a look for lost work", until_stopped=True)

    def _take_up(self, run: VerificationRun) -> Piece:
        granted = self._grants.for_claim(run.ticket.token)
        return _Run(self._context, run, self._queue, self._took, granted)


class _Run(Piece):
    """One run of the plan."""

    _hyperparameters: Hyperparameters
    _policy: SearchPolicy
    _measured: MeasuredBackend
    _backend: BackendChoice | None

    def __init__(
        self,
        context: WorkerContext,
        run: VerificationRun,
        queue: Verifications,
        took: dict[int, float],
        granted: Granted,
    ) -> None:
        """`took` are the seconds of runs that have ended here and may not be stored yet."""
        self._context = context
        self._run = run
        self._queue = queue
        self._took = took
        self._granted = granted
        self._waited = Waited(granted.waits)
        self._began = 0.0
        self.opened = next(each for each in context.studies if each.study_id == run.study_id)
        self.what = f"trial {run.trial_number} of {self.opened.name} on seed {run.seed}"
        self.ticket = run.ticket
        self.seed = run.seed
        self.running = RunningTrial(
            self.opened,
            context.name,
            run.trial_number,
            heartbeat=context.heartbeat,
            outbox=context.outbox(self.opened),
        )

    def prepare(self) -> bool:
        stored = self._context.stored
        self._policy = stored(self.opened.policy, "the study's policy", until_stopped=True)
        try:
            self._hyperparameters = self.opened.definition.hyperparameters(self._run.params)
        except KeyError as error:
            raise UnfitConfigurationError(f"planned without a value of {error}") from None
        self._measured = MeasuredBackend.of(
            self.opened, self._context.device, self._hyperparameters
        )
        self._backend = stored(self._measured.known, "a measured backend", until_stopped=True)
        return True

    def may_begin(self) -> bool:
        """It was claimed in time; the one before it may have used that up since."""
        with contextlib.suppress(*DATABASE_FAILURES):  # its claim is as good as it was
            if not in_time(self._queue, self._run, dict(self._took)):
                return False
        if self._granted.ask(self.opened, self._policy):
            return True
        with contextlib.suppress(*DATABASE_FAILURES):  # somebody may have lowered the limit
            self._queue.limits = limits_of(self._context.studies)
        return False

    def granted(self, job: TrialJob) -> TrialJob:
        """Handed back at its limit: a run that was cut short says nothing of its configuration."""
        left, own = self._granted.seconds, job.should_stop
        if left is None:
            return job

        def should_stop() -> StopReason | None:
            return StopReason.INTERRUPTED if self._took_s >= left else own()

        return dataclasses.replace(job, should_stop=should_stop)

    def begins(self) -> None:
        self._began = time.perf_counter()

    def trained(self) -> None:
        took_s = self._took_s
        self._took[self._run.run_id] = took_s
        self._granted.took(took_s)

    @property
    def _took_s(self) -> float:
        """For so long it has had its device by now."""
        return max(0.0, time.perf_counter() - self._began - self._waited.seconds)

    def keep(self) -> None:
        self._granted.keep()

    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        return TrialJob(
            study=self.opened.name,
            definition=self.opened.definition,
            # A verification is trained to its own end, in one go: its time is the point.
            policy=self._policy.but(prune=False, checkpoint_s=0.0),
            number=self._run.trial_number,
            hyperparameters=self._hyperparameters,
            backend=self._backend,
            on_backend=self._measured.settle,
            device=self._context.device,
            on_epoch=self.running.on_epoch,
            on_curve=self.running.on_curve,
            on_phase=self._context.heartbeat.phase,
            on_wait=self._waited.told,
            should_stop=should_stop,
            seed=self._run.seed,
            confirms=is_confirmation(self._run.plan),
        )
