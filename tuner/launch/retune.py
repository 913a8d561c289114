"""A retune as one function: searches, re-evaluation, confirmation, ablation where it is asked for,
and verdict, each of them the ordinary operation on ordinary studies.

What is done is what is in the database. So the same request goes on where the last one ended,
however that ended.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

from tuner.estimate.foretold import SearchForetold
from tuner.launch import launcher, verification
from tuner.launch.gpu_limit import change_gpu_hours
from tuner.launch.outcome import Outcome, refuse_nothing_but_failures
from tuner.launch.progress import Notes
from tuner.launch.request import checked
from tuner.launch.retune_agreement import Agreement, agreement
from tuner.launch.retune_checks import (
    RegistrationChangedError,
    agreed_again,
    all_has_run,
    all_is_taken_apart,
    refuse_changed,
    refuse_other_data,
    register,
    searches_are_full,
    workers_for,
)
from tuner.launch.retune_foretold import whole_retune_line
from tuner.launch.retune_request import RetuneOutcome, RetuneProgress, RetuneRequest, Silent
from tuner.launch.retune_steps import (
    ablation_request,
    confirmation_request,
    reevaluation_request,
    search_request,
)
from tuner.launch.retune_verdict import with_verdict
from tuner.launch.retune_watched import Watched
from tuner.launch.stages import Stage, Standing, of_ablation, of_runs, of_search, over
from tuner.launch.stopping import StopRequests
from tuner.launch.verification_request import VerificationRequest
from tuner.search.methods import method_of
from tuner.storage.database import open_database
from tuner.storage.remedies import in_one_sentence
from tuner.storage.url import DatabaseUrl, absolute, parse_url
from tuner.study.group import open_group
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.verdict.retune_cost import Spent, spent_on

__all__ = ["RetuneOutcome", "RetuneProgress", "RetuneRequest", "run"]

WORK = (Stage.SEARCH, Stage.REEVALUATION, Stage.CONFIRMATION)
NOTHING_S = 1e-9
"""What is left of a budget that is spent."""


def run(
    request: RetuneRequest,
    *,
    progress: RetuneProgress | None = None,
    stop: StopRequests | None = None,
) -> RetuneOutcome:
    """Retune a variant, and its reference where one is named, to a verdict; or go on with it. Ends
    as `tuner.launch.run` does.

    Raises:
        UsageError: something was asked for that is not there, does not go together, or is not what
            was registered.
        DataError: data that is missing or unfit.
        StorageError: a database that cannot be used, or fails for longer than one waits.
        TunerError: the workers could not be kept alive, or every trial of a search failed.
    """
    request, began = checked(request), time.monotonic()
    address = absolute(parse_url(request.storage))
    with in_one_sentence():
        agreed, shown = agreement(request, address), progress or Silent()
        notes, stop = Notes(shown), stop or StopRequests()
        call = _Call(request, address, agreed, shown, notes, stop, began)
        while True:
            for line in call.agreed.notes:
                notes.note(line)
            try:
                return call.outcome(call.work())
            except RegistrationChangedError:
                call.stages.clear()
                call.request, call.agreed = agreed_again(call.request, call.agreed, address)


@dataclass(slots=True)
class _Call:
    """One call of `run`."""

    request: RetuneRequest
    address: DatabaseUrl
    agreed: Agreement
    progress: RetuneProgress
    notes: Notes
    stop: StopRequests
    began: float
    """By `time.monotonic()`: what came before the work counts."""
    devices: int = 1
    left_for_runs_s: float | None = None
    """Of the budget, for re-evaluation: what the searches have not had of it."""
    stages: list[Standing] = field(default_factory=list)

    def work(self) -> Outcome:
        """Do what is left, stage after stage.

        Raises:
            RegistrationChangedError: another call has changed what it is.
        """
        if not self.agreed.registered.finished and all_has_run(self.agreed, self.address):
            self.finish()
        if self.agreed.registered.finished:
            spent = self.spent()
            for stage in WORK:
                self.tell(over(stage, spent))
            if not self.request.ablate or all_is_taken_apart(self.agreed, self.address):
                return self.told_of_ablation()
        self.devices = workers_for(self.agreed, self.request.devices, self.address)
        now = self.agreed.registered
        if now.finished or now == self.agreed.before:  # else the searches are launched, with it
            with self._opened() as members:
                change_gpu_hours(members, self.request.policy, self.notes)
        if not now.finished:
            ended = self._up_to_the_confirmation()
            if ended is not Outcome.FILLED:
                return ended
            self.finish()
        if self.request.ablate:
            ended = self._done(Stage.ABLATION, self._ablate)
            if ended is not Outcome.FILLED:
                return ended
        return self.told_of_ablation()

    def told_of_ablation(self) -> Outcome:
        """How far it is, where nothing more is done: it is over, or nobody asks for it."""
        with self._opened() as members:
            now = self.standing(Stage.ABLATION, members)
        self.tell(of_ablation(now, asked=self.request.ablate))
        return Outcome.FILLED

    def _up_to_the_confirmation(self) -> Outcome:
        ended = Outcome.FILLED
        for stage, do in zip(WORK, (self._search, self._reevaluate, self._confirm), strict=True):
            # Those before a confirmation are over once it has begun.
            if stage is Stage.CONFIRMATION or not self.agreed.variant.begun:
                ended = self._done(stage, do)
            if ended is not Outcome.FILLED:
                return ended
            self.tell(over(stage, self.spent()))
        return ended

    def finish(self) -> None:
        """Everything has run: from now on a call says the verdict again."""
        finished = self.agreed.registered.but(finished=True)
        with self._opened([self.agreed.variant.group]) as members:
            register(self.agreed, members[0], finished)
        self.agreed = dataclasses.replace(self.agreed, before=finished, registered=finished)

    def _done(self, stage: Stage, do: Callable[[float | None], Outcome]) -> Outcome:
        if self.stop.first is not None:
            return self.stop.first
        refuse_changed(self.agreed, self.address)
        left_s = None
        if self.request.timeout_s is not None:
            left_s = self.request.timeout_s - (time.monotonic() - self.began)
            if left_s <= 0:
                return Outcome.TIMED_OUT
        ended = do(left_s)
        if ended is not Outcome.FILLED:
            with self._opened() as members:
                self.stages.append(self.standing(stage, members))
        return ended

    # -- the stages --------------------------------------------------------------------------------

    def _search(self, timeout_s: float | None) -> Outcome:
        if searches_are_full(self.agreed, self.address):
            return Outcome.FILLED
        asked = search_request(self.request, self.agreed, timeout_s)
        found = launcher.run_after(
            self._register,
            asked,
            progress=self._watched(Stage.SEARCH),
            stop=self.stop,
            foretold=self._foretold,
            accept=partial(refuse_other_data, self.agreed, self.address),
        )
        if found.ended is Outcome.FILLED:
            refuse_nothing_but_failures(found)
        return found.ended

    def _foretold(self, found: Sequence[SearchForetold], notes: Notes) -> None:
        if found:
            now, devices = self.agreed.registered, self.devices
            with self._opened() as searches:
                line = whole_retune_line(
                    found, searches, now, devices=devices, ablate=self.request.ablate
                )
                notes.note(line)

    def _register(self, studies: Sequence[OpenStudy]) -> None:
        """What was asked for, before anybody works."""
        mine = next(each for each in studies if each.membership.group == self.agreed.variant.group)
        register(self.agreed, mine, self.agreed.registered)
        self.agreed = dataclasses.replace(self.agreed, before=self.agreed.registered)

    def _reevaluate(self, timeout_s: float | None) -> Outcome:
        if self._ran_again():
            return Outcome.FILLED
        budget_s = self.agreed.registered.budget_s
        if budget_s is not None:
            with self._opened() as members:
                spent_s = sum(each.ledger.spent_s() for each in members)
            self.left_for_runs_s = max(NOTHING_S, budget_s - spent_s)
        asked = reevaluation_request(
            self.request, self.agreed, timeout_s, budget_s=self.left_for_runs_s
        )
        return self._verified(Stage.REEVALUATION, asked)

    def _ran_again(self) -> bool:
        """Whether the searches themselves have run again what was promising."""
        with self._opened() as members:
            return all(method_of(each.policy().sampler).repeats for each in members)

    def _confirm(self, timeout_s: float | None) -> Outcome:
        asked = confirmation_request(self.request, self.agreed, timeout_s)
        return self._verified(Stage.CONFIRMATION, asked)

    def _ablate(self, timeout_s: float | None) -> Outcome:
        asked = ablation_request(self.request, self.agreed, timeout_s)
        return self._verified(Stage.ABLATION, asked)

    def _verified(self, stage: Stage, asked: VerificationRequest) -> Outcome:
        shown, still = self._watched(stage), partial(refuse_changed, self.agreed, self.address)
        return verification.run(asked, progress=shown, stop=self.stop, still_asked=still).ended

    # -- where it stands ---------------------------------------------------------------------------

    def standing(self, stage: Stage, studies: Sequence[OpenStudy]) -> Standing:
        """Of a stage that is under way."""
        if stage is Stage.SEARCH:
            timed = self.agreed.registered.trials is None
            return of_search(studies, devices=self.devices, timed=timed)
        left_s = self.left_for_runs_s if stage is Stage.REEVALUATION else None
        own = [e.name for e in studies if e.membership.group in self.agreed.own_groups]
        return of_runs(stage, studies, devices=self.devices, budget_s=left_s, own=own)

    def _watched(self, stage: Stage) -> Watched:
        return Watched(self.notes, self.progress, stage, self.standing)

    def tell(self, standing: Standing) -> None:
        """That a stage is over."""
        self.stages.append(standing)
        self.progress.stage(standing)

    @contextmanager
    def _opened(self, groups: Sequence[str] | None = None) -> Iterator[list[OpenStudy]]:
        """All searches of these groups, or else of those whose search is this retune's."""
        names = self.agreed.own_groups if groups is None else groups
        with closing(open_database(self.address, create=False)) as database:
            yield [each for name in names for each in open_group(database, name).members]

    def spent(self) -> Spent:
        with self._opened(self.agreed.groups) as members:
            whole = [snapshot(each).with_runs_read() for each in members]
        own = [e for e in whole if e.membership.group in self.agreed.own_groups]
        return spent_on(own, whole)

    # -- the end -----------------------------------------------------------------------------------

    def outcome(self, ended: Outcome) -> RetuneOutcome:
        """What it has come to: the verdict, once everything has run."""
        now = self.agreed.registered
        found = RetuneOutcome(
            ended=ended,
            registered=now,
            groups=self.agreed.groups,
            stages=tuple(self.stages),
            seconds=time.monotonic() - self.began,
            verdict=None,
            notes=tuple(self.notes.lines),
        )
        if not now.finished:
            return found
        self.tell(Standing(stage=Stage.VERDICT, done=0, planned=None, device_s=0.0))
        request = self.request
        said = with_verdict(found, self.agreed, task=request.task, storage=request.storage)
        return dataclasses.replace(
            said, stages=tuple(self.stages), seconds=time.monotonic() - self.began
        )
