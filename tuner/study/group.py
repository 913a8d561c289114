"""Groups: independent searches of one variant, each a study with its number.

A study that nobody put into a group is the only search of its own, which is called as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tuner.errors import StorageError, UsageError, unknown_name
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import FIRST_DRAW, Membership, name_of_search
from tuner.storage.database import Database
from tuner.study.create import MEMBERSHIP
from tuner.study.open import OpenStudy, attributes_of_studies, open_study

PREFIX = "group:"
"""Before a group's name where the name of a study may stand, too."""


class Search(Protocol):
    """What a group is made of: a study in its database (`OpenStudy`), or one as it is at a moment
    (`StudySnapshot`).
    """

    @property
    def name(self) -> str:
        """The study's."""

    @property
    def definition(self) -> StudyDefinition:
        """What was searched."""

    @property
    def membership(self) -> Membership:
        """Which search of which group it is."""


S = TypeVar("S", bound=Search)


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


def names_by_group(studies: Iterable[Search]) -> dict[str, list[str]]:
    """The studies' names in the order of their numbers, by group. What does not fit together stands
    beside each other: this is to be shown.
    """
    found: dict[str, list[Search]] = {}
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
    known = memberships(database)
    names = members_of(known, name)
    if not names:
        raise unknown_name("group", name, list(dict.fromkeys(p.group for p in known.values())))
    (group,) = grouped([open_study(database, each) for each in names.values()])
    return group


def searches_of(database: Database, group: str) -> list[str]:
    """The names of a group's studies; `group` itself where there is none, which is then the name of
    a study if it is anything.
    """
    return list(members_of(memberships(database), group).values()) or [group]


def studies_meant(database: Database, name: str) -> list[str]:
    """The names of the studies that `name` means: of that study alone, or of all in `group:NAME`.

    A study whose name begins so is found by it.

    Raises:
        UsageError: there is no such group.
    """
    known = memberships(database)
    if not name.startswith(PREFIX) or name in known:
        return [name]
    group = name.removeprefix(PREFIX)
    if not (names := members_of(known, group)):
        raise unknown_name("group", group, list(dict.fromkeys(p.group for p in known.values())))
    return list(names.values())


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
