"""A retune as one function: searches, re-evaluation, confirmation and verdict, each of them the
ordinary operation on ordinary studies.

What is done is what is in the database. So the same request goes on where the last one ended,
however that ended.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
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
    all_has_run,
    refuse_other_data,
    searches_are_full,
    workers_for,
)
from tuner.launch.retune_foretold import whole_retune_line
from tuner.launch.retune_request import RetuneOutcome, RetuneProgress, RetuneRequest, Silent
from tuner.launch.retune_steps import confirmation_request, reevaluation_request, search_request
from tuner.launch.stages import Stage, Standing, of_runs, of_search, over
from tuner.launch.stopping import StopRequests
from tuner.search.methods import method_of
from tuner.storage.database import open_database
from tuner.storage.remedies import in_one_sentence
from tuner.storage.retry import DATABASE_FAILURES
from tuner.storage.url import DatabaseUrl, absolute, parse_url
from tuner.study.group import PREFIX, open_group
from tuner.study.open import OpenStudy
from tuner.study.registered_retune import register_retune
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.studies import names_of_groups, read_studies
from tuner.verdict.epochs_of import epochs_of
from tuner.verdict.payback import Spent, paybacks, spent_on
from tuner.verdict.retuned_words import bought_sentence, payback_sentence

__all__ = ["RetuneOutcome", "RetuneProgress", "RetuneRequest", "run"]

WORK = (Stage.SEARCH, Stage.REEVALUATION, Stage.CONFIRMATION)
LOOK_S, LOOK_SHARE = 2.0, 0.05
"""Looking costs CPU time, which on a CPU run is the workers' own: not more often than this, and not
for more of the time."""
NOTHING_TO_DO = "nothing to do: "
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
        agreed = agreement(request, address)
        shown = progress or Silent()
        notes, stop = Notes(shown), stop or StopRequests()
        call = _Call(request, address, agreed, shown, notes, stop, began)
        for line in agreed.notes:
            call.notes.note(line)
        if not agreed.registered.finished and all_has_run(agreed, address):
            call.finish()
        if call.agreed.registered.finished:
            spent = call.spent()
            for stage in WORK:
                call.tell(over(stage, spent))
            return call.outcome(Outcome.FILLED)
        call.devices = workers_for(agreed, request.devices, address)
        return call.outcome(call.work())


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
        """Do what is left, stage after stage."""
        ended = Outcome.FILLED
        if self.agreed.registered == self.agreed.before:  # else the searches are launched, with it
            with self._opened() as members:
                change_gpu_hours(members, self.request.policy, self.notes)
        for stage, do in zip(WORK, (self._search, self._reevaluate, self._confirm), strict=True):
            # Those before a confirmation are over once it has begun.
            if stage is Stage.CONFIRMATION or not self.agreed.variant.begun:
                ended = self._done(stage, do)
            if ended is not Outcome.FILLED:
                return ended
            self.tell(over(stage, self.spent()))
        self.finish()
        return ended

    def finish(self) -> None:
        """Everything has run: from now on a call says the verdict again."""
        finished = dataclasses.replace(self.agreed.registered, finished=True)
        with self._opened([self.agreed.variant.group]) as members:
            register_retune(members[0], finished)
        self.agreed = dataclasses.replace(self.agreed, registered=finished)

    def _done(self, stage: Stage, do: Callable[[float | None], Outcome]) -> Outcome:
        if self.stop.first is not None:
            return self.stop.first
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
            progress=_Watched(self, Stage.SEARCH),
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
                notes.note(whole_retune_line(found, searches, now, devices=devices))

    def _register(self, studies: Sequence[OpenStudy]) -> None:
        """What was asked for, before anybody works."""
        mine = next(each for each in studies if each.membership.group == self.agreed.variant.group)
        register_retune(mine, self.agreed.registered)

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
        watched = _Watched(self, Stage.REEVALUATION)
        return verification.run(asked, progress=watched, stop=self.stop).ended

    def _ran_again(self) -> bool:
        """Whether the searches themselves have run again what was promising."""
        with self._opened() as members:
            return all(method_of(each.policy().sampler).repeats for each in members)

    def _confirm(self, timeout_s: float | None) -> Outcome:
        asked = confirmation_request(self.request, self.agreed, timeout_s)
        return verification.run(
            asked, progress=_Watched(self, Stage.CONFIRMATION), stop=self.stop
        ).ended

    # -- where it stands ---------------------------------------------------------------------------

    def standing(self, stage: Stage, studies: Sequence[OpenStudy]) -> Standing:
        """Of a stage that is under way."""
        if stage is Stage.SEARCH:
            timed = self.agreed.registered.trials is None
            return of_search(studies, devices=self.devices, timed=timed)
        left_s = self.left_for_runs_s if stage is Stage.REEVALUATION else None
        own = [e.name for e in studies if e.membership.group in self.agreed.own_groups]
        return of_runs(stage, studies, devices=self.devices, budget_s=left_s, own=own)

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
        with self._opened() as members:
            return spent_on([snapshot(each).with_runs_read() for each in members])

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
        named = [PREFIX + each for each in self.agreed.groups]
        report = compare(read_studies(named, task=self.request.task, storage=self.request.storage))
        groups, names = groups_of(report.studies), names_of_groups(report.studies)
        paid = paybacks(groups)
        lines = [payback_sentence(each, names[each.group]) for each in paid]
        if now.budget_s is not None:
            own = [each for name in self.agreed.own_groups for each in groups[name]]
            lines.insert(0, bought_sentence(spent_on(own), now.budget_s, len(own)))
        made_of = tuple(filter(None, (epochs_of(each.confirmation) for each in paid)))
        lines += [each.sentence for each in made_of]
        return dataclasses.replace(
            found,
            made_of=made_of,
            verdict=report,
            paybacks=paid,
            lines=tuple(lines),
            stages=tuple(self.stages),
            seconds=time.monotonic() - self.began,
        )


@dataclass(slots=True)
class _Watched:
    """What the operation of a stage tells, and where the stage stands meanwhile."""

    call: _Call
    stage: Stage

    def note(self, line: str) -> None:
        if not line.startswith(NOTHING_TO_DO):  # a stage that is over says so itself
            self.call.notes.note(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        next_look = 0.0

        def look() -> None:
            nonlocal next_look
            tick()
            began = time.monotonic()
            if began >= next_look:
                with suppress(*DATABASE_FAILURES):  # what works goes on without it
                    self.call.progress.stage(self.call.standing(self.stage, studies))
                now = time.monotonic()
                next_look = now + max(LOOK_S, (now - began) / LOOK_SHARE)

        with self.call.progress.watching(studies) as tick:
            look()
            yield look
