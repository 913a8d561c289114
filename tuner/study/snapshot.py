"""Groups of searches; and a study at one moment, to read and not to change: the same records
whether it lies in a database or in an exported file.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tuner.errors import StorageError, TunerError, UsageError, unknown_name
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import FIRST_DRAW, Membership, name_of_search
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.retry import persistently
from tuner.storage.url import absolute, parse_url
from tuner.study.archive import Archive, is_archive_name, read_archive
from tuner.study.create import MEMBERSHIP
from tuner.study.open import OpenStudy, attributes_of_studies, open_study
from tuner.study.results import StudyResults, TrialRecord, read_results

# Groups: independent searches of one variant, each a study with its number.


PREFIX = "group:"
"""Before a group's name where the name of a study may stand, too."""


S = TypeVar("S", bound="OpenStudy | StudySnapshot")
"""What a group is made of: a study in its database, or one as it is at a moment."""


@dataclass(frozen=True, slots=True)
class Group(Generic[S]):
    """Searches of one variant, in the order of their numbers; one at least."""

    name: str
    members: tuple[S, ...]

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def definition(self) -> StudyDefinition:
        """The same for all of them."""
        return self.members[0].definition


def grouped(studies: Iterable[S]) -> list[Group[S]]:
    """The studies as groups, in the order in which their first ones come.

    Raises:
        StorageError: two are the same search of a group, or of other definitions than each other.
    """
    found: dict[str, dict[int, S]] = {}
    for study in studies:
        place = study.membership
        members = found.setdefault(place.group, {})
        if (other := members.get(place.search)) is not None:
            raise _twice(place.group, place.search, other.name, study.name)
        members[place.search] = study
    groups = []
    for name, members in found.items():
        first, *others = (members[number] for number in sorted(members))
        for other in others:
            if other.definition.identity() != first.definition.identity():
                raise StorageError(
                    f"studies {first.name!r} and {other.name!r} say that they are searches of "
                    f"group {name!r}, and have other definitions; name one with --study NAME"
                )
        groups.append(Group(name, (first, *others)))
    return groups


def names_by_group(studies: Iterable[OpenStudy | StudySnapshot]) -> dict[str, list[str]]:
    """The studies' names in the order of their numbers, by group. What does not fit together stands
    beside each other: this is to be shown.
    """
    found: dict[str, list[OpenStudy | StudySnapshot]] = {}
    for study in studies:
        found.setdefault(study.membership.group, []).append(study)
    return {
        group: [each.name for each in sorted(members, key=lambda each: each.membership.search)]
        for group, members in found.items()
    }


# -- in a database ---------------------------------------------------------------------------------


def memberships(database: Database) -> dict[str, Membership]:
    """Of every study that tuner made here, by its name, oldest first. One that cannot be read is
    left out: whoever opens that study hears of it.
    """
    found = {}
    for name, attributes in attributes_of_studies(database).items():
        try:
            found[name] = Membership.model_validate(attributes.get(MEMBERSHIP), strict=True)
        except ValueError:
            continue
    return found


def members_of(known: Mapping[str, Membership], group: str) -> dict[int, str]:
    """The names of a group's studies, by their numbers; none where there is no such group.

    Raises:
        StorageError: two are the same search.
    """
    found: dict[int, str] = {}
    for name, place in known.items():
        if place.group == group:
            if place.search in found:
                raise _twice(group, place.search, found[place.search], name)
            found[place.search] = name
    return {number: found[number] for number in sorted(found)}


def open_group(database: Database, name: str) -> Group[OpenStudy]:
    """The searches of the group `name`.

    Raises:
        UsageError: there is no such group.
        StorageError: its studies do not fit together, or one cannot be read.
    """
    names = _members(memberships(database), name)
    (group,) = grouped([open_study(database, each) for each in names])
    return group


def _members(known: Mapping[str, Membership], group: str) -> list[str]:
    """Raises UsageError where there is no such group."""
    if not (names := members_of(known, group)):
        raise unknown_name("group", group, list(dict.fromkeys(p.group for p in known.values())))
    return list(names.values())


def searches_of(database: Database, group: str) -> list[str]:
    """The names of a group's studies; `group` itself where there is none, which is then the name of
    a study if it is anything.
    """
    return list(members_of(memberships(database), group).values()) or [group]


def studies_meant(database: Database, names: str) -> list[str]:
    """The names of the studies that `names` means, each once: with commas, NAME or `study:NAME` of
    that study alone, `group:NAME` of all in the group. What a study is called finds that study.

    Raises:
        UsageError: there is no such group.
    """
    known, found = memberships(database), list[str]()
    for name in [names] if names in known else map(str.strip, names.split(",")):
        if name.startswith(PREFIX) and name not in known:
            found += _members(known, name.removeprefix(PREFIX))
        else:
            found.append(name if name in known else name.removeprefix(STUDY))
    return list(dict.fromkeys(found))


def study_meant(database: Database, name: str) -> str:
    """The same where it has to be one study.

    Raises:
        UsageError: there is no such group, or several studies are meant.
    """
    found = studies_meant(database, name)
    if len(found) > 1:
        raise UsageError(f"{name} means {len(found)} studies; name one of {', '.join(found)}")
    return found[0]


def all_meant(database: Database, names: Iterable[str], *, variants: bool) -> list[str]:
    """The names of the studies that all of `names` mean: see `studies_meant`; or, where they are
    those that `variants` go by, `searches_of`.

    Raises:
        UsageError: there is no such group, or a study is meant twice.
    """
    found: list[str] = []
    for name in names:
        meant = searches_of(database, name) if variants else studies_meant(database, name)
        if twice := set(meant) & set(found):
            raise UsageError(f"study {min(twice)!r} is named twice; name each once")
        found += meant
    return found


# -- for a launch ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedSearches:
    """What a launch means by a name: studies that are there or are to be made, by their names."""

    places: Mapping[str, Membership]
    like: str | None = None
    """The member whose settings new ones begin with; None where none is there yet."""
    notes: tuple[str, ...] = ()


def asked_searches(
    known: Mapping[str, Membership], name: str, searches: int | None, draw: int | None = None
) -> AskedSearches:
    """The studies that a launch of `searches` searches called `name` is about, given all `known`
    ones.

    Without a number those that are there, or a single new one. `name` may be that of one search of
    another group, which is meant alone then. New ones are of the draw of those that are there, or
    else of `draw`, or of the first.

    Raises:
        UsageError: a study has a name that a new search would get; or a number of searches of a
            single one; or what is there is of another `draw`.
    """
    own = known.get(name)
    if own is not None and own.group != name:
        if searches is not None:
            raise UsageError(
                f"study {name!r} is search {own.search} of group {own.group!r}, and --searches is "
                f"said of a group; say --study with the group's name"
            )
        refuse_other_draw(name, own, draw)
        return AskedSearches({name: own}, like=name)
    there = members_of(known, name)
    for study in there.values():
        refuse_other_draw(study, known[study], draw)
    first = next(iter(there.values()), None)
    drawn = known[first].draw if first is not None else draw or FIRST_DRAW
    numbers = range(1, searches + 1) if searches is not None else there or [1]
    places = {}
    for number in numbers:
        study = there.get(number) or name_of_search(name, number)
        if number not in there and study in known:
            raise UsageError(
                f"study {study!r} is there and is no search of group {name!r}; choose another name "
                "for the group with --study NAME"
            )
        place = Membership.of_new(study, group=name, search=number, draw=drawn)
        places[study] = known.get(study) or place
    return AskedSearches(places, first, _changes(name, there, searches))


def refuse_other_draw(study: str, place: Membership, said: int | None) -> None:
    """Of a study that is there.

    Raises:
        UsageError: another draw than its own was `said`.
    """
    if said is not None and said != place.draw:
        raise UsageError(
            f"study {study!r} is of draw {place.draw}, and --draw {said} was said; a study keeps "
            "its seeds: begin the other draw in another database, with --storage URL"
        )


def _changes(name: str, there: Mapping[int, str], searches: int | None) -> tuple[str, ...]:
    """What to say of a group that has another size than it is asked for."""
    if searches is None or not there:
        return ()
    new = [number for number in range(1, searches + 1) if number not in there]
    left = [study for number, study in there.items() if number > searches]
    lines = []
    if new:
        lines.append(
            f"{name} grows from {len(there)} to {len(there) + len(new)} searches; new ones begin "
            f"with the settings of {next(iter(there.values()))}"
        )
    if left:
        lines.append(
            f"{name} has {len(there) + len(new)} searches; this launch is about the first "
            + (f"{searches} of them" if searches > 1 else "one")
        )
    return tuple(lines)


def _twice(group: str, search: int, one: str, other: str) -> StorageError:
    return StorageError(
        f"studies {one!r} and {other!r} both say that they are search {search} of group {group!r}; "
        "name one with --study NAME"
    )


# A study at one moment.


Curves = Callable[[Collection[int]], Mapping[int, tuple[EpochRow, ...]]]
"""The epochs of the trials with these numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySnapshot:
    """A study's search and its verification.

    What not every reader needs (`runs`, `curves`) is read when it is asked for, from a
    database that is open then.
    """

    name: str
    definition: StudyDefinition
    membership: Membership
    policy: SearchPolicy
    device_model: str | None
    results: StudyResults
    read_runs: Callable[[], tuple[VerificationRun, ...]]
    curves: Curves

    @property
    def runs(self) -> tuple[VerificationRun, ...]:
        """Its verification runs, in the order of their plan."""
        return self.read_runs()

    def with_runs_read(self) -> StudySnapshot:
        """The same for who closes the database and then asks for the runs."""
        runs = self.runs
        return dataclasses.replace(self, read_runs=lambda: runs)

    @property
    def variant(self) -> str:
        return self.definition.variant

    @property
    def finished(self) -> int:
        """Trials that the search finished, however they ended."""
        return sum(record.state.is_finished() for record in self.results.records)

    def record(self, number: int) -> TrialRecord:
        return next(record for record in self.results.records if record.number == number)

    def configuration(self, number: int) -> TrialRecord:
        """The configuration of a trial, with what all its trials came to; of a trial that is not
        complete that trial.
        """
        return self.results.configuration_of(number) or self.record(number)


def snapshot(found: OpenStudy | Archive) -> StudySnapshot:
    """The study as its database has it now, or as it was exported."""
    return _of_archive(found) if isinstance(found, Archive) else _of_study(found)


def _of_study(opened: OpenStudy) -> StudySnapshot:
    return StudySnapshot(
        name=opened.name,
        definition=opened.definition,
        membership=opened.membership,
        policy=opened.policy(),
        device_model=opened.device_model(),
        results=read_results(opened),
        read_runs=functools.cache(opened.verifications.runs),
        curves=opened.epochs.of_trials,
    )


def _of_archive(archive: Archive) -> StudySnapshot:
    return StudySnapshot(
        name=archive.name,
        definition=archive.definition,
        membership=archive.membership,
        policy=archive.policy,
        device_model=archive.device_model,
        results=archive.results,
        read_runs=lambda: archive.verifications,
        curves=lambda numbers: {
            number: archive.curves[number] for number in numbers if number in archive.curves
        },
    )


# What a name on the command line means: a study in the database, or the file of an exported one.


STUDY = "study:"


def snapshot_named(name: str, database: Callable[[], Database]) -> StudySnapshot:
    """The study that `name` means; the database is opened only where it is asked for.

    `study:NAME` is a study of the database, whatever it is called. Any other name is a file where
    it ends as an exported study does and there is such a file; else it is a study of the database.

    Raises:
        UsageError: there is no such study, or the file is no exported one.
        StorageError: the database cannot be read.
    """
    return snapshot(_found(name, database))


def names_meant(name: str, database: Callable[[], Database]) -> list[str]:
    """`name`, or each search of the group where it is `group:NAME`, as `snapshot_named` takes them.

    Raises:
        UsageError: there is no such group.
        StorageError: the database cannot be read.
    """
    if not name.startswith(PREFIX):
        return [name]
    return [STUDY + study for study in studies_meant(database(), name)]


def opened_patiently(database: Database, names: str, *, retry_s: float) -> list[OpenStudy]:
    """Studies as `studies_meant` takes them. An outage is waited for, `retry_s` at most.

    Raises:
        UsageError: there is no such study or group.
        DBAPIError, StorageInternalError: the database stayed away.
    """
    look = functools.partial(studies_meant, database, names)
    meant = persistently(look, "the studies", retry_s=retry_s)
    return [
        persistently(functools.partial(open_study, database, name), "a study", retry_s=retry_s)
        for name in meant
    ]


def _found(name: str, database: Callable[[], Database]) -> OpenStudy | Archive:
    if name.startswith(STUDY):
        return open_study(database(), name.removeprefix(STUDY))
    if not is_archive_name(name):
        return open_study(database(), name)
    if Path(name).exists():
        return read_archive(Path(name))
    try:
        return open_study(database(), name)
    except TunerError as error:
        raise UsageError(
            f"there is no file {name}, and no study of that name either: {error}"
        ) from None


def says_which(name: str) -> bool:
    """True for a name of either form that `snapshot_named` tells apart from a variant's."""
    return name.startswith((STUDY, PREFIX)) or is_archive_name(name)


@contextmanager
def opened_if_needed(storage: str) -> Iterator[Callable[[], Database]]:
    """The database at this URL, opened at the first call and closed at the end."""
    opened: list[Database] = []

    def database() -> Database:
        if not opened:
            opened.append(open_database(absolute(parse_url(storage)), create=False))
        return opened[0]

    try:
        yield database
    finally:
        for each in opened:
            each.close()
