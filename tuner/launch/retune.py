"""A retune as one function: searches, re-evaluation, confirmation and verdict, each of them the
ordinary operation on ordinary studies.

What is done is what is in the database. So the same request goes on where the last one ended,
however that ended.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tuner.devices.gpu import of_several
from tuner.errors import UsageError
from tuner.estimate.foretold import SearchForetold
from tuner.estimate.whole_estimate import retune_line, stages_of
from tuner.launch import launcher, verification
from tuner.launch.crew import change_gpu_hours
from tuner.launch.request import (
    DeviceChoice,
    Notes,
    Outcome,
    StopRequests,
    checked,
    refuse_nothing_but_failures,
)
from tuner.launch.retune_agreement import (
    Agreement,
    agreement,
    confirmation_begun,
    confirmation_request,
    members_there,
    reevaluation_request,
    search_request,
)
from tuner.launch.retune_request import (
    RetuneOutcome,
    RetuneProgress,
    RetuneRequest,
    Silent,
    Stage,
    Standing,
    of_runs,
    of_search,
    over,
)
from tuner.launch.verification import VerificationRequest
from tuner.launch.where import choose_where
from tuner.search.methods import method_of
from tuner.settings import changes
from tuner.spec.definition import StudyDefinition, raised
from tuner.spec.policy import Registered
from tuner.storage.database import initialisation_lock, open_database
from tuner.storage.retry import DATABASE_FAILURES, in_one_sentence
from tuner.storage.url import DatabaseUrl, absolute, parse_url
from tuner.study.open import OpenStudy, devices_of_trials, register_retune, registered_in
from tuner.study.snapshot import PREFIX, open_group, snapshot
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of
from tuner.verdict.compare.studies import names_of_groups, read_studies
from tuner.verdict.confirmation import confirmation_of, known_runs_of
from tuner.verdict.confirmation_plan import missing_runs
from tuner.verdict.retune_cost import (
    Spent,
    bought_sentence,
    cost_sentence,
    costs,
    epochs_of,
    price_sentence,
    spent_on,
)
from tuner.verdict.verified import verifications_of

__all__ = ["RetuneOutcome", "RetuneProgress", "RetuneRequest", "run"]


# What is looked at before a retune works: what its verdict would fail by at the end, as times of
# other devices and figures of other data, and whether there is anything left to run.


REMEDY = "or retune both in a database of their own (--storage)"


class RegistrationChangedError(Exception):
    """Another call has changed what is registered since this one read it."""


def refuse_changed(agreed: Agreement, address: DatabaseUrl) -> None:
    """Raises RegistrationChangedError where what is registered is not what was `agreed` on."""
    group = agreed.variant.group
    with members_there(address, [group]) as members:
        for study in members[group][:1]:
            _refuse_changed(agreed, study)


def _refuse_changed(agreed: Agreement, study: OpenStudy) -> None:
    if registered_in(study.database, study.name) not in (agreed.before, agreed.registered):
        raise RegistrationChangedError


def agreed_again(
    request: RetuneRequest, was: Agreement, address: DatabaseUrl
) -> tuple[RetuneRequest, Agreement]:
    """How a call goes on after RegistrationChangedError. What it said was registered before the
    other's: then it says no more. Or it was not: then it says it now.
    """
    if was.registered != was.before:
        return request, agreement(request, address)
    request = _unsaid(request)
    now = agreement(request, address)
    changed = [f"from {each}" for each in changes(was.registered, now.registered)]
    told = (
        f"another call has changed the retune of {now.variant.group} {', '.join(changed)} "
        "meanwhile: this one goes on with that"
    )
    return request, dataclasses.replace(now, notes=(told,) if changed else ())


def _unsaid(request: RetuneRequest) -> RetuneRequest:
    """The same without what is registered: for a call that goes on with what is there."""
    said = [name for name in Registered.model_fields if hasattr(request, name)]
    nothing: dict[str, Any] = dict.fromkeys(said)
    return dataclasses.replace(request, **nothing)


def register(agreed: Agreement, study: OpenStudy, retune: Registered) -> None:
    """Compare and set: under the lock under which confirmations are planned, too.

    Raises:
        RegistrationChangedError: another call was first, or has planned the confirmation.
    """
    with initialisation_lock(study.database.address):
        _refuse_changed(agreed, study)
        begun = not agreed.variant.begun and confirmation_begun(study)
        if begun and not retune.finished:
            raise RegistrationChangedError
        register_retune(study, retune)


def workers_for(agreed: Agreement, choice: DeviceChoice, address: DatabaseUrl) -> int:
    """How many workers there will be.

    Raises:
        UsageError: devices that are not there, or of another model than a search of either variant,
            as far as that is known: an engine's are not before a worker is there.
        TunerError: an engine that cannot be reached.
    """
    where = choose_where(choice, environment=os.environ)
    with members_there(address, agreed.groups) as members:
        bound = {}
        for group, mine in members.items():
            together = devices_of_trials(mine) if mine else 1
            here = None if where.model is None else of_several(where.model, together)
            bound[group] = {each.device_model() for each in mine} - {None, here}
    for group, models in bound.items():
        if where.model is not None and models:
            remedy = f", {REMEDY}" if len(agreed.groups) > 1 else ""
            raise UsageError(
                f"{group!r} holds times measured on {min(map(str, models))!r}, the device here is "
                f"{where.model!r}: times of different devices do not compare; run on the same kind "
                f"of device{remedy}"
            )
    return where.workers


def refuse_other_data(
    agreed: Agreement, address: DatabaseUrl, asked: Mapping[str, StudyDefinition]
) -> None:
    """Raises UsageError where the searches that are `asked` for would be on other data than the
    reference, which is there.
    """
    others = [group for group in agreed.groups if group not in asked]
    wanted = {definition.data_hash for definition in asked.values()}
    with members_there(address, others) as members:
        for group, mine in members.items():
            if {each.definition.data_hash for each in mine} - wanted:
                raise UsageError(
                    f"{min(asked)!r} would be on other data than {group!r}, and their figures "
                    f"would not compare; give the data that {group!r} is on (--data-dir), {REMEDY}"
                )


def searches_are_full(agreed: Agreement, address: DatabaseUrl, *, max_epochs: int = 0) -> bool:
    """Whether all searches are there and have what was registered before this call, within a limit
    of at least so many epochs.
    """
    if agreed.registered != agreed.before:
        return False
    with members_there(address, [each.group for each in agreed.to_search]) as members:
        for mine in members.values():
            counts = [study.ledger.counts() for study in mine]
            unfinished = any(count.left or count.lacks_hours for count in counts)
            unfinished |= any(raised(s.definition, max_epochs) != s.definition for s in mine)
            if unfinished or len(mine) < agreed.registered.searches:
                return False
    return True


def all_has_run(agreed: Agreement, address: DatabaseUrl) -> bool:
    """Whether each search of this retune is confirmed, and nothing has run since by which one would
    choose anew: then its verdict needs no device.
    """
    if agreed.registered != agreed.before or not agreed.variant.begun:
        return False
    with members_there(address, agreed.groups) as members:
        own = [members[group] for group in agreed.own_groups]
        if any(len(mine) < agreed.registered.searches for mine in own):
            return False
        whole = [each for mine in members.values() for each in mine]
        if not all(_stands(each) for mine in own for each in mine):
            return False
        return not missing_runs(whole, verifications_of(whole).runs())


def _stands(search: OpenStudy) -> bool:
    """Its confirmation has all its runs, and nothing has run since."""
    study = snapshot(search).with_runs_read()
    there = confirmation_of(study)
    return there is not None and there.complete and there.frozen.known == known_runs_of(study)


# What a whole retune is foretold to take, said before its searches go on.


def whole_retune_line(
    found: Sequence[SearchForetold],
    searches: Sequence[OpenStudy],
    registered: Registered,
    *,
    devices: int,
) -> str | None:
    """Of all its `searches`, those that are over included; `found` is of the others. None where it
    is not known of all of them.
    """
    over = searches_over(searches)
    if len(found) + len(over) < len(searches):
        return None
    stages = stages_of(
        found,
        sampler=searches[0].policy().sampler,
        seeds=registered.confirm_seeds,
        budget_s=registered.budget_s,
        over_s=over,
    )
    return retune_line(stages, devices=devices)


def searches_over(searches: Sequence[OpenStudy]) -> list[float]:
    """Seconds of devices of each that no trial is to come of."""
    return [each.ledger.spent_s() for each in searches if not each.ledger.counts().left]


# What a retune has come to, once everything has run: the comparison, its cost, and sentences.


def with_verdict(
    found: RetuneOutcome, agreed: Agreement, *, task: str, storage: str
) -> RetuneOutcome:
    """The same outcome with what `tuner compare` says of its groups, and what it cost."""
    named = [PREFIX + each for each in agreed.groups]
    report = compare(read_studies(named, task=task, storage=storage))
    groups, names = groups_of(report.studies), names_of_groups(report.studies)
    paid = costs(groups)
    lines = [cost_sentence(each, names[each.group]) for each in paid]
    budget_s = agreed.registered.budget_s
    if budget_s is not None:
        own = [each for name in agreed.own_groups for each in groups[name]]
        lines.insert(0, bought_sentence(spent_on(own), budget_s, len(own)))
    for each in paid:
        priced = each.confirmation.study if each.confirmation else groups[each.group][0].name
        (study,) = (one for one in groups[each.group] if one.name == priced)
        if said := price_sentence(study, names[each.group]):
            lines.append(said)
    made_of = tuple(filter(None, (epochs_of(each.confirmation) for each in paid)))
    lines += [each.sentence for each in made_of]
    return dataclasses.replace(
        found, made_of=made_of, verdict=report, costs=paid, lines=tuple(lines)
    )


# What the operation of a retune's stage tells, and where the stage stands meanwhile.


LOOK_S, LOOK_SHARE = 2.0, 0.05
"""Looking costs CPU time, which on a CPU run is the workers' own: not more often than this, and not
for more of the time."""
NOTHING_TO_DO = "nothing to do: "


@dataclass(slots=True)
class Watched:
    """As the progress of a launch or of a verification."""

    notes: Notes
    progress: RetuneProgress
    stage: Stage
    standing: Callable[[Stage, Sequence[OpenStudy]], Standing]

    def note(self, line: str) -> None:
        if not line.startswith(NOTHING_TO_DO):  # a stage that is over says so itself
            self.notes.note(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        next_look = 0.0

        def look() -> None:
            nonlocal next_look
            tick()
            began = time.monotonic()
            if began >= next_look:
                with suppress(*DATABASE_FAILURES):  # what works goes on without it
                    self.progress.stage(self.standing(self.stage, studies))
                now = time.monotonic()
                next_look = now + max(LOOK_S, (now - began) / LOOK_SHARE)

        with self.progress.watching(studies) as tick:
            look()
            yield look


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
            return Outcome.FILLED
        self.devices = workers_for(self.agreed, self.request.devices, self.address)
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
        return Outcome.FILLED

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
        max_epochs = self.request.settings.said().get("max_epochs", 0)
        if searches_are_full(self.agreed, self.address, max_epochs=max_epochs):
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
                notes.note(whole_retune_line(found, searches, now, devices=devices))

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
