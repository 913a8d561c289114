"""What a retune is about before anything runs: which groups of searches, what was registered with
them, and what this call says beside it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tuner.data.task import load_task
from tuner.errors import EmptyDatabaseError, UsageError
from tuner.launch.plan import study_files
from tuner.launch.request import LaunchRequest, Request, SearchRequest, shared
from tuner.launch.retune_request import RetuneRequest
from tuner.launch.verification import VerificationRequest
from tuner.search.methods import method_of
from tuner.settings import differing
from tuner.spec.margin import MARGIN
from tuner.spec.policy import CAP, SEARCHES, Registered, SearchPolicy, agreed
from tuner.spec.program import ClockLabel, refuse_other_clocks, refuse_other_windows
from tuner.storage.database import Database, open_database
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy, open_study, registered_in
from tuner.study.snapshot import PREFIX, STUDY, members_of, memberships, refuse_other_draw
from tuner.verdict.confirmation import confirmed_studies
from tuner.verdict.verification_plan import study_names

# Searches that are held against each other begin alike: one that is added later, as those that
# are there.


_OF_THE_RETUNE = ("margin", "search_s", "max_gpu_s", "gpu_shared")
"""Of a policy, what a retune registers, or has shared out; searches begin alike in all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """What new searches begin with, where nothing else is said."""

    draw: int | None
    """None: nobody has said one, and each group goes on with its own."""
    policy: SearchPolicy | None
    """None: all are new, or none is."""

    def said_with(self, said: SearchPolicy) -> SearchPolicy:
        """What was said, and what those that are there have."""
        if self.policy is None:
            return said
        own = {}
        for name in differing(SearchPolicy(), self.policy):
            if name not in _OF_THE_RETUNE and not said.says(name):
                own[name] = getattr(self.policy, name)
        return said.but(**own)


NOTHING_THERE = Alike(draw=None, policy=None)


def alike(groups: Sequence[Sequence[OpenStudy]], said_draw: int | None) -> Alike:
    """For the searches of these groups, of which some may be empty yet.

    Raises:
        UsageError: another draw was said than one of them is of.
    """
    there = [study for group in groups for study in group]
    for study in there:
        refuse_other_draw(study.name, study.membership, said_draw)
    if all(groups) or not there:
        return Alike(draw=said_draw, policy=None)
    return Alike(draw=there[0].membership.draw, policy=there[0].policy())


SEARCH_SHARE = 0.6
"""Of a budget, for the trials of a sampler that repeats nothing. The rest tells the lucky ones from
the good ones (docs/decisions/0015)."""


def share_of_search(budget_s: float, *, searches: int, repeats: bool) -> float:
    """Seconds on devices for the trials of one of so many searches."""
    return budget_s * (1.0 if repeats else SEARCH_SHARE) / searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A variant of a retune."""

    word: str
    """As it was named: a built-in variant, or the path of a study file."""
    group: str
    begun: bool
    """Runs of its confirmation are planned."""

    @staticmethod
    def of(word: str, group: str, members: Iterable[OpenStudy]) -> Searched:
        return Searched(word=word, group=group, begun=any(map(confirmation_begun, members)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a retune is from now on."""

    registered: Registered
    before: Registered | None
    """What was registered when the call began."""
    variant: Searched
    reference: Searched | None
    begins: Alike = NOTHING_THERE
    """What searches begin with that are not there yet."""
    repeats: bool
    """The sampler runs promising configurations again by itself."""
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        """All that the verdict is about, the reference first."""
        found = (self.reference, self.variant)
        return tuple(each.group for each in found if each is not None)

    @property
    def own_groups(self) -> tuple[str, ...]:
        """Those whose search is this retune's."""
        return self.groups[-self.registered.together :]

    @property
    def share_s(self) -> float | None:
        """Seconds on devices for the trials of one search; None where there is no budget."""
        now = self.registered
        if now.budget_s is None:
            return None
        return share_of_search(
            now.budget_s, searches=now.searches * now.together, repeats=self.repeats
        )

    @property
    def own(self) -> tuple[Searched, ...]:
        """Whose search is this retune's, the reference first."""
        reference = self.reference if self.registered.together > 1 else None
        return tuple(each for each in (reference, self.variant) if each)

    @property
    def to_search(self) -> tuple[Searched, ...]:
        """Of these, whose search and re-evaluation are not over."""
        return tuple(each for each in self.own if not each.begun)


def agreement(request: RetuneRequest, address: DatabaseUrl) -> Agreement:
    """What is registered, with what the request says in its place. Nothing is written.

    Raises:
        UsageError: a variant or task that is not there, or what cannot change any more.
        StorageError: the database cannot be read.
    """
    if len(study_files(request.variant)) > 1:
        raise UsageError(f"--variant {request.variant} names several; name one, and --against one")
    (group,) = study_names(request.variant, task=request.task)
    with _opened_if_there(address) as database:
        there = registered_in(database, group) if database else None
        mine, its = _members(database, group), []
        against = request.against
        if against is None and there is not None:
            against = there.against
        reference = None
        if against is not None:
            other, *more = study_names(against, task=request.task)
            if more:
                raise UsageError(f"--against {against} names several; name one")
            if other == group:
                raise UsageError(f"--against {against} is the variant itself; name another one")
            its = _members(database, other)
            reference = Searched.of(against, other, its)
            refuse_other_windows(other, _mql_split(its, request), group, _mql_split(mine, request))
            refuse_other_clocks(other, _clock(its, against), group, _clock(mine, request.variant))
        variant = Searched.of(request.variant, group, mine)
        begins = alike([mine] if reference is None else [mine, its], request.draw)
        _check_warm_start(request.warm_start, variant, reference)
        said = request.said()
        repeats = _repeats(mine, request)
        usual = Registered()
        if there is None:
            usual = _usual(mine, group, request.searches, repeats=repeats)
        now, notes = agreed(group, there, usual, said, begun=variant.begun)
        if _raises_epochs(request, [*mine, *(its if now.together > 1 else ())]):
            now = now.but(finished=False)
    if there is None or there.against != now.against:
        searched = reference is not None and not reference.begun
        now = now.but(together=2 if searched else 1)
    return Agreement(
        registered=now,
        before=there,
        variant=variant,
        reference=reference,
        begins=begins,
        repeats=repeats,
        notes=tuple(notes),
    )


def _raises_epochs(request: RetuneRequest, members: Sequence[OpenStudy]) -> bool:
    """Whether searches that are there are asked to go on with a higher limit of epochs.

    Raises:
        UsageError: it is a lower one, or one of them has runs on fresh seeds under the other.
    """
    asked = request.settings.said().get("max_epochs")
    if asked is None:
        return False
    others = [each for each in members if each.definition.training.max_epochs != asked]
    for each in others:
        limit = each.definition.training.max_epochs
        if asked < limit or each.verifications.runs():
            raise UsageError(
                f"--max-epochs {asked}: {each.name} was searched with {limit}; retune it in a "
                "database of its own (--storage)"
            )
    return bool(others)


def _check_warm_start(named: str | None, variant: Searched, reference: Searched | None) -> None:
    """Searches that begin with what their own kind found are no searches of their own, and between
    variants all begin alike.
    """
    if named is None:
        return
    for group in (variant.group, reference.group if reference else variant.group):
        for name in named.split(","):
            plain = name.strip().removeprefix(STUDY)
            if plain == group or re.fullmatch(rf"{re.escape(group)}-[0-9]+", plain):
                raise UsageError(
                    f"--warm-start {named}: {plain} is a search of this retune itself; name a "
                    "study of another architecture, or leave it out"
                )
    if reference is not None and reference.begun:
        raise UsageError(
            f"--warm-start {named}: {reference.group} is confirmed already, and between variants "
            "all searches begin alike; leave it out, or hold the variant against nothing"
        )


def confirmation_begun(study: OpenStudy) -> bool:
    """Whether runs of a confirmation of a study are planned."""
    return any(study.name in confirmed_studies(run) for run in study.verifications.runs())


@contextmanager
def members_there(
    address: DatabaseUrl, groups: Iterable[str]
) -> Iterator[dict[str, list[OpenStudy]]]:
    """The searches of each group; none before there is a database.

    Raises:
        StorageError: the database cannot be read.
    """
    with _opened_if_there(address) as database:
        yield {group: _members(database, group) for group in groups}


@contextmanager
def _opened_if_there(address: DatabaseUrl) -> Iterator[Database | None]:
    """The database; None before there is one, which the first launch makes."""
    if address.is_sqlite and not address.sqlite_path.exists():
        yield None
        return
    try:
        found = open_database(address, create=False)
    except EmptyDatabaseError:
        yield None
        return
    with closing(found) as database:
        yield database


def _members(database: Database | None, group: str) -> list[OpenStudy]:
    if database is None:
        return []
    return [
        open_study(database, name) for name in members_of(memberships(database), group).values()
    ]


def _mql_split(there: Sequence[OpenStudy], request: RetuneRequest) -> str:
    """That of the group's searches, or else the one that they will have."""
    if there:
        return there[0].definition.mql_split
    return (request.settings.mql_split or load_task(request.task).usual_split).value


def _clock(there: Sequence[OpenStudy], word: str) -> ClockLabel:
    """That of the group's searches, or else the one that they will have."""
    if there:
        return there[0].definition.clock
    (file,) = study_files(word).values()
    return ClockLabel.TUNER if file.program is None else file.program.label


def _repeats(there: Sequence[OpenStudy], request: RetuneRequest) -> bool:
    """Whether the sampler that is asked for, or else that of the studies, runs again what is
    promising.
    """
    said = request.policy.said().get("sampler")
    of_studies = there[0].policy() if there else SearchPolicy()
    return method_of(str(said or of_studies.sampler)).repeats


def _usual(
    there: Sequence[OpenStudy], group: str, searches: int | None, *, repeats: bool
) -> Registered:
    """What a retune is that nobody said anything of: what is there is gone on with.

    Raises:
        UsageError: fewer `searches` than there are.
    """
    if not there:
        return Registered.usual(repeats=repeats)
    if searches is not None and searches < len(there):
        raise UsageError(
            f"--searches {searches}: there are {len(there)} searches of {group!r} already, and all "
            "of a variant count; say as many, or more"
        )
    first = there[0]
    return Registered(
        searches=max(SEARCHES, len(there)),
        trials=first.ledger.counts().budget,
        margin=first.policy().counted_margin,
    )


# The stages of a retune as requests to the ordinary operations.


MOST_TRIALS = 2000
"""Of a search that its budget in time ends."""


def search_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None
) -> LaunchRequest:
    """All searches, of the reference as well where that is not confirmed yet."""
    now, policy = agreed.registered, agreed.begins.said_with(request.policy)
    if request.margin is not None or now.margin != MARGIN:
        policy = policy.but(margin=now.margin)
    if agreed.share_s is not None:
        policy = policy.but(search_s=agreed.share_s)
    if agreed.before is None:  # those that have begun go on as they did
        policy = policy.but(cap=CAP, against=agreed.reference and agreed.reference.group)
    own = {
        "variants": [each.word for each in agreed.to_search],
        "trials": now.trials or MOST_TRIALS,
        "searches": now.searches,
        "draw": agreed.begins.draw,
        "timeout_s": timeout_s,
        "policy": policy,
    }
    return LaunchRequest(**(shared(request, SearchRequest) | own))


def reevaluation_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None, *, budget_s: float | None
) -> VerificationRequest:
    """What may be recommended again, in rounds; `budget_s` is for all of them."""
    asked = _of_runs(request, agreed.to_search, timeout_s)
    return dataclasses.replace(asked, budget_s=budget_s, top=request.top)


def confirmation_request(
    request: RetuneRequest, agreed: Agreement, timeout_s: float | None
) -> VerificationRequest:
    """What each search recommends, on seeds that nothing has seen.

    Where the reference has a confirmation, that one stays, and is gone on with.
    """
    reference = agreed.reference
    if reference is not None and not reference.begun:
        asked = _of_runs(request, (reference, agreed.variant), timeout_s)
    else:
        asked = _of_runs(request, (agreed.variant,), timeout_s)
        if reference is not None:
            asked = dataclasses.replace(asked, against=PREFIX + reference.group)
    now = agreed.registered
    return dataclasses.replace(asked, confirm=True, seeds=now.confirm_seeds, margin=now.margin)


def _of_runs(
    request: RetuneRequest, searched: Sequence[Searched], timeout_s: float | None
) -> VerificationRequest:
    own = {
        "variants": [each.word for each in searched],
        "studies": ",".join(PREFIX + each.group for each in searched),
        "timeout_s": timeout_s,
    }
    return VerificationRequest(**(shared(request, Request) | own))


def ends_of_search(
    *, trials: int | None, budget_s: float | None, searches: int, repeats: bool
) -> tuple[int, float | None]:
    """After how many trials, and after how many seconds on devices, each of so many searches ends
    of a retune that nobody has begun: by what was said of it, which may be nothing.
    """
    if budget_s is not None:
        within_s = share_of_search(budget_s, searches=searches, repeats=repeats)
        return trials or MOST_TRIALS, within_s
    return trials or Registered.usual(repeats=repeats).trials or MOST_TRIALS, None
