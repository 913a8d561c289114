"""Verification runs as work: in the plan's order, until none is left, the answer is clear, or the
time that they have is over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence

from tuner.config import StopReason
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.queue.verifications import VerificationRun, Verifications, is_confirmation
from tuner.storage.retry import DATABASE_FAILURES
from tuner.trial.job import TrialJob
from tuner.verdict.round_allowances import in_time, skip_what_is_too_late
from tuner.verdict.verified import limits_of, verifications_of
from tuner.worker.work_source import (
    GpuGrants,
    Piece,
    Source,
    Turn,
    WorkerContext,
)


class VerificationSource(Source):
    """The planned runs of all the worker's studies, which are one queue: they are interleaved."""

    def __init__(self, context: WorkerContext) -> None:
        self.context = context
        self.queue = verifications_of(context.studies)
        self.took: dict[int, float] = {}
        self.grants = GpuGrants(context.name)

    @property
    def queues(self) -> Sequence[Verifications]:
        return (self.queue,)

    def in_turn(self) -> Sequence[Turn[VerificationRun]]:
        stored = self.context.stored
        late = "a look whether there is time for more"
        stored(lambda: skip_what_is_too_late(self.queue), late, until_stopped=True)
        left = stored(self.queue.counts, "what is left", until_stopped=True).left
        return (Turn(self.queue, self._take_up),) if left else ()

    def idle(self) -> None:
        stored, studies = self.context.stored, self.context.studies
        look = functools.partial(limits_of, studies)
        self.queue.limits = stored(look, "the device hours", until_stopped=True)
        limits = self.queue.limits.values()
        take_back = functools.partial(self.grants.take_back, studies[0].database, limits)
        stored(take_back, "a look for lost work", until_stopped=True)

    def _take_up(self, run: VerificationRun) -> Piece:
        return _Run(self, run)


class _Run(Piece):
    """One run of the plan."""

    def __init__(self, source: VerificationSource, run: VerificationRun) -> None:
        opened = next(e for e in source.context.studies if e.study_id == run.study_id)
        super().__init__(
            source.context,
            opened,
            run.ticket,
            source.grants,
            number=run.trial_number,
            seed=run.seed,
            what=f"trial {run.trial_number} of {opened.name} on seed {run.seed}",
        )
        self._run, self._queue, self._took = run, source.queue, source.took

    def prepare(self) -> bool:
        stored = self._context.stored
        self._policy = stored(self.opened.policy, "the study's policy", until_stopped=True)
        try:
            self._take(self._run.params)
        except KeyError as error:
            raise UnfitConfigurationError(f"planned without a value of {error}") from None
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
            return StopReason.INTERRUPTED if self.had_s() >= left else own()

        return dataclasses.replace(job, should_stop=should_stop)

    def trained(self) -> None:
        super().trained()
        self._took[self._run.work_id] = self.had_s()

    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        # A verification is trained to its own end, in one go: its time is the point.
        whole = self._policy.but(prune=False, checkpoint_s=0.0)
        confirms = is_confirmation(self._run.plan)
        return self._job(should_stop, policy=whole, seed=self._run.seed, confirms=confirms)
