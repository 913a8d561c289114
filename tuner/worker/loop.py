"""The worker's loop: claim a trial, have it trained, record its result; one device, the least filled study first."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import traceback
import uuid
from collections.abc import Sequence
from pathlib import Path

from optuna.trial import FrozenTrial

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu
from tuner.job import CONTEXT_LOST, TrialJob, TrialRunner, failed
from tuner.space import hyperparameters
from tuner.storage import Claim, TrialResult
from tuner.storage.outbox import Outbox
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study import OpenStudy, SearchPolicy
from tuner.study.objectives import violations
from tuner.study.sampler import sampler_for
from tuner.study.seeds import seed_of_trial
from tuner.study.suggest import UnfitConfigurationError
from tuner.worker.afresh import ContextLostError, lost_context
from tuner.worker.delivery import delivered
from tuner.worker.lease import KeptLease, lease_on
from tuner.worker.patience import Patience
from tuner.worker.places import Places, deliver, forget_trials, tidy_up
from tuner.worker.presence import new_name, present
from tuner.worker.pruning import StudyPruning
from tuner.worker.pulse import WAITING, Pulse
from tuner.worker.running import RunningTrial
from tuner.worker.stop import StopFlag

IDLE_S = 1.0
_log = logging.getLogger(__name__)


class Worker:
    """Runs the trials of `studies` on `device` through `run_trial`, until all budgets are filled."""

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
        self._studies = studies
        self._device = device
        self._run_trial = run_trial
        self.name = name or new_name()
        self._stop = stop or StopFlag()
        self._pulse = pulse or Pulse()
        self._places = places
        self._stored = Patience(studies, self.name, self._stop, self._pulse)
        self._keys: dict[str, str] = {}
        self._searched: dict[str, SearchPolicy] = {}
        self._pruning = {opened.name: StudyPruning(opened) for opened in studies}
        self._results = 0
        """How many of them count."""
        self._free_since: float | None = None
        """When the last training returned, with a result or not; None: there was none, or nothing to claim since."""

    def run(self) -> None:
        """Work until every budget is filled or the stop flag is set.

        Raises:
            UsageError: a study is bound to another device model.
            ContextLostError: the device needs a fresh process.
        """
        with present(self._studies, self.name, self._device, self._stored, self._prepare):
            self._work()

    def hand_back(self) -> None:
        """From another thread, when this one does not come to it: return whatever is claimed, and sign out.

        What has a result by now that is not stored yet is not returned, but finished.
        """
        if self._places is not None:
            deliver(self._studies, self._places)
        for opened in self._studies:
            opened.ledger.reap(worker=self.name, state="returned")
            opened.roster.leave(self.name)

    def _prepare(self, opened: OpenStudy) -> None:
        self._keys[opened.name] = opened.key()
        if self._places is not None:
            tidy_up(opened, self._places)
        opened.ledger.return_strays()

    def _work(self) -> None:
        while not self._stop.is_set():
            open_budgets = self._open_budgets()
            if not open_budgets:
                return
            for opened in open_budgets:
                take = functools.partial(opened.ledger.claim, self.name, token=uuid.uuid4().hex)
                claim = self._stored(take, "a claim", until_stopped=True)
                if claim is not None:
                    self._run_one(opened, claim)
                    break
            else:
                # Others run the last trials: one of them may still come back.
                self._pulse.phase(WAITING)
                self._stop.wait(IDLE_S)
                self._free_since = None

    def _open_budgets(self) -> list[OpenStudy]:
        """Studies that are not filled yet, the emptiest first, after taking back what dead workers held."""
        fill = []
        for index, opened in enumerate(self._studies):
            self._stored(opened.ledger.reap, "a look for lost trials", until_stopped=True)
            counts = self._stored(opened.ledger.counts, "the budget", until_stopped=True)
            if counts.left:
                fill.append(((counts.finished + counts.running) / counts.budget, index, opened))
        return [opened for _, _, opened in sorted(fill, key=lambda item: item[:2])]

    def _run_one(self, opened: OpenStudy, claim: Claim) -> None:
        self._pulse.new_trial()
        running = RunningTrial(
            opened, self.name, claim, claim.trial_number, pulse=self._pulse, outbox=self._outbox(opened)
        )
        with lease_on(claim, opened.ledger, opened.roster, self.name, self._stop) as lease:
            # It is kept until the result is stored: an outage at the end must not cost the training.
            self._run_claimed(opened, claim, running, lease)

    def _run_claimed(self, opened: OpenStudy, claim: Claim, running: RunningTrial, lease: KeptLease) -> None:
        policy = self._follow_policy(opened)
        asked = time.perf_counter()
        try:
            trial = self._stored(lambda: opened.ask(claim), "a trial's parameters", until_stopped=True)
        except UnfitConfigurationError as error:
            refused = failed(StopReason.ERROR, str(error), self._device, seed_of_trial(claim.trial_number))
            self._stored(lambda: opened.ledger.finish(claim, refused), "a result")
            return
        suggest_s = time.perf_counter() - asked
        if trial is None:
            return
        earlier = functools.partial(opened.ledger.earlier_attempts, claim)
        attempts = 1 + self._stored(earlier, "a look at earlier attempts", until_stopped=True)
        _log.info("trial %d of %s: %s", trial.number, opened.name, trial.params)
        self._report(opened, trial_number=trial.number, epoch=0)
        running.watched = self._pruning[opened.name].watch(trial, policy)
        began = time.perf_counter()
        result, context_lost = self._train(opened, trial, policy, running, lease)
        if result is None:
            self._free_since = time.perf_counter()
            running.deliver()
            self._stored(lambda: opened.ledger.give_back(claim), "a trial handed back")
            _log.info("trial %d handed back", trial.number)
            return
        result.attributes.update({"attempts": attempts, "suggest_s": suggest_s, **self._cycle(began, suggest_s)})
        result.attributes["attempt_s"] = time.perf_counter() - asked
        if result.values is not None:
            values = (result.values[0], result.values[1])
            result.constraints.update(violations(policy, values, result.attributes))
        if result.attributes.get("stopped_by") == StopReason.PRUNED and running.watched is not None:
            verdict = running.watched.verdict(int(result.attributes.get("epochs") or 0))
            result.attributes.update(verdict.attributes() if verdict is not None else {})
        counted = self._deliver(running, result)
        _log.info(
            "trial %d %s: %s %s",
            trial.number,
            "done" if counted else "not counted",
            result.state.name,
            result.values or result.attributes.get("failure", ""),
        )
        self._report(opened, trial_number=None, epoch=None)
        if context_lost:
            raise ContextLostError(str(result.attributes.get("failure")), results=self._results)
        self._results += counted

    def _cycle(self, began: float, suggest_s: float) -> dict[str, float]:
        """Of a trial whose training began at `began` and returned now: seconds since the one before it returned, and
        those of them that went to storing that one's result, claiming this trial and preparing it.
        """
        since, self._free_since = self._free_since, time.perf_counter()
        if since is None:
            return {}
        return {"cycle_s": self._free_since - since, "turnover_s": began - since - suggest_s}

    def _deliver(self, running: RunningTrial, result: TrialResult) -> bool:
        """Store a result, on local disk first: it outlives this process. True when it counts."""
        running.deliver()
        running.spill()
        opened, claim = running.opened, running.claim
        finish = functools.partial(opened.ledger.finish, claim, result)
        counted = delivered(running.outbox, claim, result, lambda: self._stored(finish, "a result"))
        running.deliver()
        if counted and (folder := self._checkpoints(opened)) is not None:
            forget_trials(folder, {claim.trial_number})
        return counted

    def _outbox(self, opened: OpenStudy) -> Outbox | None:
        return Outbox(self._places.outbox, self._keys[opened.name]) if self._places is not None else None

    def _checkpoints(self, opened: OpenStudy) -> Path | None:
        return self._places.checkpoints(opened.name, self._keys[opened.name]) if self._places is not None else None

    def _follow_policy(self, opened: OpenStudy) -> SearchPolicy:
        """Use the sampler that the study was last told to use; returns all that it was told."""
        policy = self._stored(opened.policy, "the study's policy", until_stopped=True)
        if self._searched.get(opened.name) != policy:
            opened.optuna.sampler = sampler_for(opened.name, opened.definition, policy)
            self._searched[opened.name] = policy
        return policy

    def _report(self, opened: OpenStudy, *, trial_number: int | None, epoch: int | None) -> None:
        """For who watches: no reason to end a worker when the database is away just now."""
        with contextlib.suppress(*DATABASE_FAILURES):
            opened.roster.report(self.name, trial_number=trial_number, epoch=epoch, val_loss=None)

    def _train(
        self, opened: OpenStudy, trial: FrozenTrial, policy: SearchPolicy, running: RunningTrial, lease: KeptLease
    ) -> tuple[TrialResult | None, bool]:
        """The trial's result, None when it was interrupted, and whether this process can train no more."""
        job = TrialJob(
            study=opened.name,
            definition=opened.definition,
            policy=policy,
            number=trial.number,
            hyperparameters=hyperparameters(trial.params),
            device=self._device,
            on_epoch=running.on_epoch,
            on_curve=running.on_curve,
            on_phase=self._pulse.phase,
            should_stop=lease.should_stop,
            study_key=self._keys[opened.name],
            checkpoints=self._checkpoints(opened),
        )
        return survived(self._run_trial, job, seed=seed_of_trial(trial.number))


def survived(run_trial: TrialRunner, job: TrialJob, *, seed: int) -> tuple[TrialResult | None, bool]:
    """What `run_trial` returns, or the failure that it raised; and whether this process can train no more."""
    try:
        result = run_trial(job)
    except Exception as error:  # noqa: BLE001 - whatever a model raises is that trial's result, not the worker's end
        _log.error("trial %d failed:\n%s", job.number, traceback.format_exc())
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        return failed(StopReason.ERROR, message, job.device, seed), lost_context(error)
    return result, result is not None and bool(result.attributes.get(CONTEXT_LOST))
