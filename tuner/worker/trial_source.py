"""Trials as work, of the least filled study first, with parameters that its sampler chooses; and
verification runs, in their plan's order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from tuner.config import StopReason
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.search.bounds import FinishedTrial, Stopping
from tuner.search.history import Configuration, configuration
from tuner.search.methods import prunes
from tuner.search.pruning import Pruner, carried_on
from tuner.search.sampler import EncodedSampler, sampler_for
from tuner.search.suggest import UnfitConfigurationError
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import seed_of_trial
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.verifications import VerificationRun, Verifications, is_confirmation
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, judged, record_of
from tuner.study.snapshot import open_group
from tuner.trial.job import TrialJob, Watched
from tuner.verdict.round_allowances import in_time, skip_what_is_too_late
from tuner.verdict.verified import limits_of, verifications_of
from tuner.worker.paths import forget_trials
from tuner.worker.work_source import Piece, Source, Turn, WorkerContext

# Pruning as a worker prepares it: finished curves are read between trials.


_log = logging.getLogger(__name__)


class StudyPruning:
    """What a worker knows of the finished trials of one study: each is read once, for what has
    finished never changes.

    So what is read before a trial does not grow with the study.
    """

    def __init__(self, opened: OpenStudy) -> None:
        self._opened = opened
        self._curves: dict[int, tuple[tuple[float, ...], ...]] = {}
        self._finished: dict[int, FinishedTrial] = {}
        self._ran: dict[int, Configuration] = {}
        """Of the complete trials."""
        self._policy: SearchPolicy | None = None
        """Under whose limits they are feasible or not."""

    def watch(self, trial: FrozenTrial, policy: SearchPolicy) -> Watched | None:
        """The watch over a trial that is about to start; None when it is not to be pruned.

        The default configuration never is: everything is measured against it. Nor is one that
        repeats a complete trial: it is there for the mean, which would miss its slow and bad runs.
        A database that is away is no reason to wait: the trial is then trained to its end.
        """
        if not prunes(policy.sampler, policy.prune) or Recorded.from_flat(trial.user_attrs).default:
            return None
        definition = self._opened.definition
        training = definition.training
        try:
            pruner = Pruner(
                self.finished(policy),
                Stopping(
                    # A program stops by a rule of its own: it may end with any epoch.
                    patience=training.patience if definition.program is None else 0,
                    min_delta=training.min_delta,
                    max_epochs=training.max_epochs,
                ),
                time_objective=definition.objectives[0],
                target_val_loss=definition.target_val_loss,
                seeds=definition.seeds_per_trial,
            )
            if not pruner.ready or self._repeats(trial):
                return None
            pruner.look_up()  # here, where nothing is timed
            watched = Watched(pruner)
            watched.remember(self._opened.epochs.of_trial(trial.number))
        except DATABASE_FAILURES:
            _log.warning("the database is away; trial %d will not be pruned", trial.number)
            return None
        return watched

    def _repeats(self, trial: FrozenTrial) -> bool:
        """Whether another trial of its configuration is complete."""
        mine = configuration(trial.params)
        return any(number != trial.number and mine == ran for number, ran in self._ran.items())

    def finished(self, policy: SearchPolicy) -> list[FinishedTrial]:
        """The complete trials with their curves, up to now, under the limits of `policy`."""
        if policy != self._policy:
            self._finished, self._policy = {}, policy
        complete = self._opened.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        definition = self._opened.definition
        new = [each for each in complete if each.number not in self._finished]
        fresh = [record_of(trial, definition) for trial in new]
        records = judged(fresh, definition.objectives, policy).complete
        self._ran.update((record.number, configuration(record.params)) for record in records)
        without = [record.number for record in records if record.number not in self._curves]
        if without:
            rows = self._opened.epochs.of_trials(without)
            self._curves.update({number: _curves(rows.get(number, ())) for number in without})
        for record in records:
            self._finished[record.number] = finished_trial(record, self._curves[record.number])
        return [self._finished[number] for number in sorted(self._finished)]


def finished_trial(record: TrialRecord, curves: tuple[tuple[float, ...], ...]) -> FinishedTrial:
    """A complete trial, with the validation losses of each of its seeds, as the pruner takes it."""
    assert record.values is not None, "a complete trial has values"
    dominates, values = record.converged and record.feasible, record.values
    return FinishedTrial(number=record.number, values=values, curves=curves, dominates=dominates)


def _curves(rows: Iterable[EpochRow]) -> tuple[tuple[float, ...], ...]:
    """The validation losses of a trial's epochs, one curve for each of its seeds."""
    by_seed: dict[int, list[float | None]] = {}
    for row in rows:
        by_seed.setdefault(row.repeat, []).append(row.val_loss)
    curves = [carried_on(losses) for losses in by_seed.values()]
    return tuple(curve for curve in curves if curve)


# How long a training may take, in searches whose trainings are capped.


LEAST_DEFAULTS = 3
"""Converged runs of the default, of which the median counts."""
UNCAPPED = 10
"""Of so many trials one is: whether anything slower forecasts better is known by these."""


def capped(
    opened: OpenStudy, together: Sequence[OpenStudy], trial: FrozenTrial, policy: SearchPolicy
) -> StudyDefinition:
    """The study with a limit on the time of this training. None is added to a run of the default,
    to every tenth trial and to a program's training, nor while no default is known well enough, or
    the database is away. Of studies that are searched `together` the slowest default counts.
    """
    definition = opened.definition
    apart = definition.program or trial.number % UNCAPPED == UNCAPPED - 1
    if policy.cap is None or apart or _is_default(opened, trial):
        return definition
    with contextlib.suppress(*DATABASE_FAILURES):
        usual = [_usual_s(each) for each in {one.name: one for one in (opened, *together)}.values()]
        if usual[0] is not None:
            cap_s = policy.cap * max(s for s in usual if s is not None)
            limit_s = min(cap_s, definition.training.time_limit_s or cap_s)
            training = definition.training.but(time_limit_s=limit_s)
            return dataclasses.replace(definition, training=training)
    return definition


def _is_default(opened: OpenStudy, trial: FrozenTrial) -> bool:
    definition = opened.definition
    mine = configuration(definition.space.true(trial.params))
    return mine == configuration(definition.defaults.as_dict())


def _usual_s(opened: OpenStudy) -> float | None:
    """What the default takes; None while too few of its runs have converged."""
    found = [r.wall_clock_s for r, _ in _runs_of_default(opened) if r.wall_clock_s]
    return statistics.median(found) if len(found) >= LEAST_DEFAULTS else None


def _runs_of_default(opened: OpenStudy) -> list[tuple[Recorded, Sequence[float]]]:
    """Those that converged, with their objectives."""
    complete = opened.optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    runs = [each for each in complete if _is_default(opened, each)]
    ran = [(Recorded.from_flat(each.user_attrs), each.values) for each in runs]
    return [(recorded, values) for recorded, values in ran if recorded.converged]


class Levels:
    """What another group's default asks for, of searches that are held against it."""

    def __init__(self, together: Sequence[OpenStudy]) -> None:
        self._together = together
        self._apart: dict[str, Sequence[OpenStudy]] = {}
        """Groups of which this worker trains nothing."""

    def asked(self, opened: OpenStudy, policy: SearchPolicy) -> float | None:
        """The logarithm of the mean MQL of that default with the margin; None for its own group,
        and while too few of its runs have converged.
        """
        group = policy.against
        if group is None or group == opened.membership.group:
            return None
        mqls: list[float] = []
        with contextlib.suppress(UsageError, *DATABASE_FAILURES):
            for each in self._members(group, opened):
                mqls += [values[1] for _, values in _runs_of_default(each) if values[1] > 0]
        if len(mqls) < LEAST_DEFAULTS:
            return None
        return math.log((1 + policy.counted_margin) * statistics.fmean(mqls))

    def _members(self, group: str, opened: OpenStudy) -> Sequence[OpenStudy]:
        there = [each for each in self._together if each.membership.group == group]
        if there:
            return there
        if group not in self._apart:
            self._apart[group] = open_group(opened.database, group).members
        return self._apart[group]


# What a worker's time between two trainings went to.


@dataclass(slots=True)
class TrialTimes:
    """When what happened to one trial, in seconds of `time.perf_counter`."""

    source: TrialSource
    _asks: float = 0.0
    _asked: float = 0.0
    _begins: float = 0.0
    _returned: float = 0.0
    _before: float | None = None
    """When the training before this one returned."""

    def asks(self) -> None:
        """For the trial's parameters."""
        self._asks = time.perf_counter()

    def asked(self) -> None:
        """It has them."""
        self._asked = time.perf_counter()

    def begins(self) -> None:
        """The training has its device."""
        self._begins, self._before = time.perf_counter(), self.source.free_since

    def returned(self) -> None:
        """The training has returned."""
        self._returned = self.source.free_since = time.perf_counter()

    @property
    def waits_s(self) -> float:
        """Seconds that the device has been free by now."""
        since = self.source.free_since
        return 0.0 if since is None else time.perf_counter() - since

    @property
    def waited_s(self) -> float:
        """Seconds that the device was free before it."""
        return 0.0 if self._before is None else self._begins - self._before

    @property
    def since(self) -> float:
        """From when on the device was for it: the time before it that it waited is its own."""
        return self._begins if self._before is None else self._before

    def said_in(self, recorded: Recorded) -> Recorded:
        """The record of the trial with this in it.

        `cycle_s` is since the training before it returned. Of that the device waited
        `suggest_wait_s` for this trial's parameters, and `turnover_s` for the rest: the other one's
        result stored, this trial claimed and prepared. What was done while that one trained is in
        none of them.
        """
        recorded = dataclasses.replace(
            recorded,
            suggest_s=self._asked - self._asks,
            attempt_s=self._returned - self._begins + self._asked - self._asks,
        )
        if self._before is None:
            return recorded
        waited_s = max(0.0, self._asked - max(self._asks, self._before))
        return dataclasses.replace(
            recorded,
            suggest_wait_s=waited_s,
            cycle_s=self._returned - self._before,
            turnover_s=self._begins - self._before - waited_s,
        )


class TrialSource(Source):
    """The trials of the worker's studies, until all budgets are filled."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._searched: dict[str, tuple[SearchPolicy, int, EncodedSampler]] = {}
        """Each study's sampler, and of which policy and budget it was made."""
        self.pruning = {opened.name: StudyPruning(opened) for opened in context.studies}
        self.levels = Levels(context.studies)
        self.free_since: float | None = None
        """Since when the device is free for the next training: when the last one returned, with a
        result or not; None: there was none, or nothing to claim since."""
        self.took: dict[str, dict[int, float]] = {opened.name: {} for opened in context.studies}

    @property
    def queues(self) -> Sequence[Ledger]:
        return [opened.ledger for opened in self.context.studies]

    def sign_in(self, opened: OpenStudy) -> None:
        opened.ledger.return_strays()

    def in_turn(self) -> Sequence[Turn[Claim]]:
        """The studies that are not filled yet, the emptiest first."""
        fill = []
        for index, opened in enumerate(self.context.studies):
            counts = self.context.stored(opened.ledger.counts, "the budget", until_stopped=True)
            if counts.left:
                full = (counts.finished + counts.running) / counts.budget
                fill.append((full, index, opened, counts.budget))
        turns = []
        for full, _, opened, budget in sorted(fill, key=lambda item: item[:2]):
            take_up = functools.partial(_Trial, self, opened, budget)
            turns.append(Turn(opened.ledger, take_up, all_taken=full >= 1.0))
        return turns

    def idle(self) -> None:
        self.free_since, studies = None, self.context.studies
        limits = [each.ledger.last_hours for each in studies]
        take_back = functools.partial(self.grants.take_back, studies[0].database, limits)
        self.context.stored(take_back, "a look for lost work", until_stopped=True)

    def follow_policy(self, opened: OpenStudy, *, budget: int) -> SearchPolicy:
        """Use the sampler that the study was last told to use, for a budget of so many trials;
        returns all that it was told.
        """
        policy = self.context.stored(opened.policy, "the study's policy", until_stopped=True)
        made = self._searched.get(opened.name)
        if made is None or made[:2] != (policy, budget):
            of = opened.membership
            more = {"search": of.search, "draw": of.draw, "budget": budget}
            sampler = sampler_for(opened.made_as, opened.definition, policy, **more)
            opened.optuna.sampler = sampler
            made = self._searched[opened.name] = policy, budget, sampler
        made[2].level = self.levels.asked(opened, policy)
        return policy


class _Trial(Piece):
    """One trial of the search."""

    _trial: FrozenTrial
    _attempts: int

    def __init__(self, source: TrialSource, opened: OpenStudy, budget: int, claim: Claim) -> None:
        seed = seed_of_trial(claim.trial_number, root=opened.membership.seed_root)
        super().__init__(source, opened, claim, seed)
        self._source, self._budget, self._claim = source, budget, claim
        self._took = source.took[opened.name]
        self._times = TrialTimes(source)

    def prepare(self) -> bool:
        stored, claim = self._context.stored, self._claim
        self._policy = self._source.follow_policy(self.opened, budget=self._budget)
        self._times.asks()
        ask = functools.partial(self.opened.ask, claim)
        trial = stored(ask, "a trial's parameters", until_stopped=True)
        self._times.asked()
        if trial is None:
            return False
        self._trial = trial
        earlier = functools.partial(self.opened.ledger.earlier_attempts, claim)
        self._attempts = 1 + stored(earlier, "a look at earlier attempts", until_stopped=True)
        self._take(trial.params)
        return True

    def job(self, should_stop: Callable[[], StopReason | None]) -> TrialJob:
        pruning = self._source.pruning[self.opened.name]
        self.running.watched = pruning.watch(self._trial, self._policy)
        return self._job(
            should_stop,
            definition=capped(self.opened, self._context.studies, self._trial, self._policy),
            seed_root=self.opened.membership.seed_root,
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
        if self._is_granted(self._times.waits_s):
            return True
        self._source.free_since = None  # the device waits for hours now, not for this worker
        return False

    def granted(self, job: TrialJob) -> TrialJob:
        left = self._granted_s
        if left is None:
            return job
        return dataclasses.replace(job, may_take_s=left / self._devices - self._times.waited_s)

    def begins(self) -> None:
        self._times.begins()
        self._since = self._times.since

    def trained(self) -> None:
        self._times.returned()
        super().trained()
        self._took[self._claim.trial_number] = self.had_s()

    def recorded(self, result: TrialResult) -> TrialResult:
        # With what others could change of the trial while it ran.
        trial = self._trial
        recorded = Recorded.from_flat(trial.user_attrs | result.recorded.to_flat())
        recorded = dataclasses.replace(self._times.said_in(recorded), attempts=self._attempts)
        return self.running.judged(dataclasses.replace(result, recorded=recorded), self._policy)

    def counted(self) -> None:
        if (folder := self._context.checkpoints(self.opened)) is not None:
            forget_trials(folder, {self._claim.trial_number})


# Verification runs as work: until none is left, the answer is clear, or their time is over.


class VerificationSource(Source):
    """The planned runs of all the worker's studies, which are one queue: they are interleaved."""

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.queue = verifications_of(context.studies)
        self.took: dict[int, float] = {}

    @property
    def queues(self) -> Sequence[Verifications]:
        return (self.queue,)

    def in_turn(self) -> Sequence[Turn[VerificationRun]]:
        stored = self.context.stored
        late = "a look whether there is time for more"
        stored(lambda: skip_what_is_too_late(self.queue), late, until_stopped=True)
        left = stored(self.queue.counts, "what is left", until_stopped=True).left
        return (Turn(self.queue, functools.partial(_Run, self)),) if left else ()

    def idle(self) -> None:
        stored, studies = self.context.stored, self.context.studies
        look = functools.partial(limits_of, studies)
        self.queue.limits = stored(look, "the device hours", until_stopped=True)
        limits = self.queue.limits.values()
        take_back = functools.partial(self.grants.take_back, studies[0].database, limits)
        stored(take_back, "a look for lost work", until_stopped=True)


class _Run(Piece):
    """One run of the plan."""

    def __init__(self, source: VerificationSource, run: VerificationRun) -> None:
        opened = next(e for e in source.context.studies if e.study_id == run.study_id)
        super().__init__(source, opened, run.ticket, run.seed)
        self.what = f"{self.what} on seed {run.seed}"
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
        if self._is_granted():
            return True
        with contextlib.suppress(*DATABASE_FAILURES):  # somebody may have lowered the limit
            self._queue.limits = limits_of(self._context.studies)
        return False

    def granted(self, job: TrialJob) -> TrialJob:
        """Handed back at its limit: a run that was cut short says nothing of its configuration."""
        left, own = self._granted_s, job.should_stop
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
