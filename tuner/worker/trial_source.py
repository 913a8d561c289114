"""Trials as work: of the least filled study first, with parameters that its sampler chooses."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial

from tuner.config import Hyperparameters, StopReason
from tuner.devices.backend_choice import BackendChoice
from tuner.record import Recorded
from tuner.search.sampler import sampler_for
from tuner.spec.policy import SearchPolicy
from tuner.spec.seeds import seed_of_trial
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.backends import MeasuredBackend
from tuner.worker.gpu_grants import GpuGrants, Granted
from tuner.worker.live_pruning import StudyPruning
from tuner.worker.paths import forget_trials
from tuner.worker.running import RunningTrial
from tuner.worker.turnover import TrialTimes, Turnover
from tuner.worker.waited import Waited
from tuner.worker.work_source import Piece, Source, Turn, WorkerContext


class TrialSource(Source):
    """The trials of the worker's studies, until all budgets are filled."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._searched: dict[str, tuple[SearchPolicy, int]] = {}
        """How each study's sampler was made: of which policy and budget."""
        self._pruning = {opened.name: StudyPruning(opened) for opened in context.studies}
        self._turnover = Turnover()
        self._grants = GpuGrants(context.name)
        self._took: dict[str, dict[int, float]] = {opened.name: {} for opened in context.studies}

    @property
    def queues(self) -> Sequence[Ledger]:
        return [opened.ledger for opened in self._context.studies]

    def sign_in(self, opened: OpenStudy) -> None:
        opened.ledger.return_strays()

    def in_turn(self) -> Sequence[Turn[Claim]]:
        """The studies that are not filled yet, the emptiest first."""
        fill = []
        for index, opened in enumerate(self._context.studies):
            counts = self._context.stored(opened.ledger.counts, "the budget", until_stopped=True)
            if counts.left:
                full = (counts.finished + counts.running) / counts.budget
                fill.append((full, index, opened, counts.budget))
        return [
            Turn(
                opened.ledger,
                functools.partial(self._take_up, opened, budget),
                all_taken=full >= 1.0,
            )
            for full, _, opened, budget in sorted(fill, key=lambda item: item[:2])
        ]

    def idle(self) -> None:
        self._turnover.idle()
        limits = [each.ledger.spent.last_hours for each in self._context.studies]
        take_back = functools.partial(
            self._grants.take_back, self._context.studies[0].database, limits
        )
        self._context.stored(take_back, "a look for lost work", until_stopped=True)

    def follow_policy(self, opened: OpenStudy, *, budget: int) -> SearchPolicy:
        """Use the sampler that the study was last told to use, for a budget of so many trials;
        returns all that it was told.
        """
        policy = self._context.stored(opened.policy, "the study's policy", until_stopped=True)
        if self._searched.get(opened.name) != (policy, budget):
            opened.optuna.sampler = sampler_for(
                opened.name,
                opened.definition,
                policy,
                search=opened.membership.search,
                draw=opened.membership.draw,
                budget=budget,
            )
            self._searched[opened.name] = policy, budget
        return policy

    def _take_up(self, opened: OpenStudy, budget: int, claim: Claim) -> Piece:
        return _Trial(
            self._context,
            opened,
            claim,
            functools.partial(self.follow_policy, budget=budget),
            self._pruning[opened.name],
            self._turnover,
            self._took[opened.name],
            self._grants.for_claim(claim.token),
        )


class _Trial(Piece):
    """One trial of the search."""

    _trial: FrozenTrial
    _policy: SearchPolicy
    _attempts: int
    _hyperparameters: Hyperparameters
    _measured: MeasuredBackend
    _backend: BackendChoice | None

    def __init__(
        self,
        context: WorkerContext,
        opened: OpenStudy,
        claim: Claim,
        follow_policy: Callable[[OpenStudy], SearchPolicy],
        pruning: StudyPruning,
        turnover: Turnover,
        took: dict[int, float],
        granted: Granted,
    ) -> None:
        """`took` are the seconds of trials of the study that have ended here and may not be stored
        yet, by number.
        """
        self._context = context
        self._claim = claim
        self._took = took
        self._granted = granted
        self._waited = Waited(granted.waits)
        self._follow_policy = follow_policy
        self._pruning = pruning
        self._times = TrialTimes(turnover)
        self.opened = opened
        self.what = f"trial {claim.trial_number} of {opened.name}"
        self.ticket = claim
        self._seed_root = opened.membership.seed_root
        self.seed = seed_of_trial(claim.trial_number, root=self._seed_root)
        self.running = RunningTrial(
            opened,
            context.name,
            claim.trial_number,
            claim=claim,
            heartbeat=context.heartbeat,
            outbox=context.outbox(opened),
        )

    def prepare(self) -> bool:
        stored, claim = self._context.stored, self._claim
        self._policy = self._follow_policy(self.opened)
        self._times.asks()
        ask = functools.partial(self.opened.ask, claim)
        trial = stored(ask, "a trial's parameters", until_stopped=True)
        self._times.asked()
        if trial is None:
            return False
        self._trial = trial
        earlier = functools.partial(self.opened.ledger.earlier_attempts, claim)
        self._attempts = 1 + stored(earlier, "a look at earlier attempts", until_stopped=True)
        self._hyperparameters = self.opened.definition.hyperparameters(trial.params)
        self._measured = MeasuredBackend.of(
            self.opened, self._context.device, self._hyperparameters
        )
        self._backend = stored(self._measured.known, "a measured backend", until_stopped=True)
        return True

    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        self.running.watched = self._pruning.watch(self._trial, self._policy)
        return TrialJob(
            study=self.opened.name,
            definition=self.opened.definition,
            policy=self._policy,
            number=self._trial.number,
            hyperparameters=self._hyperparameters,
            backend=self._backend,
            on_backend=self._measured.settle,
            device=self._context.device,
            on_epoch=self.running.on_epoch,
            on_curve=self.running.on_curve,
            on_phase=self._context.heartbeat.phase,
            on_wait=self._waited.told,
            should_stop=should_stop,
            seed_root=self._seed_root,
            study_key=self._context.keys[self.opened.name],
            checkpoints=self._context.checkpoints(self.opened),
            watched=self.running.watched,
        )

    def may_begin(self) -> bool:
        """It was claimed in time; the one before it may have used that up since."""
        may_take = self._policy.search_s
        if may_take is not None:
            with contextlib.suppress(*DATABASE_FAILURES):  # its claim is as good as it was
                if self.opened.ledger.spent_s(dict(self._took)) >= may_take:
                    return False
        if self._granted.ask(self.opened, self._policy, self._times.waits_s):
            return True
        self._times.turnover.idle()  # from now on its device waits for hours, not for this worker
        return False

    def granted(self, job: TrialJob) -> TrialJob:
        left = self._granted.seconds
        if left is None:
            return job
        return dataclasses.replace(job, may_take_s=left - self._times.waited_s)

    def begins(self) -> None:
        self._times.begins()

    def trained(self) -> None:
        self._times.returned()
        took_s = max(0.0, self._times.took_s - self._waited.seconds)
        self._took[self._claim.trial_number] = took_s
        self._granted.took(took_s)

    def keep(self) -> None:
        self._granted.keep()

    def recorded(self, result: TrialResult) -> TrialResult:
        # With what others could change of the trial while it ran.
        trial = self._trial
        recorded = Recorded.from_flat(trial.user_attrs | result.recorded.to_flat())
        recorded = dataclasses.replace(self._times.said_in(recorded), attempts=self._attempts)
        result = dataclasses.replace(result, recorded=recorded, params=trial.params)
        return self.running.judged(result, self._policy)

    def counted(self) -> None:
        if (folder := self._context.checkpoints(self.opened)) is not None:
            forget_trials(folder, {self._claim.trial_number})
