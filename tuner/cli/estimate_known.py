"""What `tuner estimate` need not ask a device: sizes measured before, trials that have ended."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tuner.cli.options import is_named, note, storage_url

if TYPE_CHECKING:
    from tuner.estimate.measuring.measuring_process import MeasuringProcess
    from tuner.estimate.search_hours import Ended
    from tuner.estimate.size_costs import SizeCosts
    from tuner.spec.definition import StudyDefinition
    from tuner.storage.database import Database


def known_or_measured(
    process: MeasuringProcess, seconds: float, *, again: bool
) -> tuple[SizeCosts, tuple[str, ...]]:
    """What the sizes cost, as it was measured before, all of them, or measured now and kept; and
    why these figures are to be doubted, which is said, too.
    """
    from tuner.devices import Watch
    from tuner.estimate.cost_sizes import to_measure
    from tuner.estimate.measuring.measured_costs import EVERY_SIZE, measured_costs
    from tuner.estimate.size_costs import keep, kept, key_of_search
    from tuner.estimate.trials_so_far import installed_torch

    definition = process.subject.definition
    key = key_of_search(definition, process.subject.device.model, installed_torch())
    wanted = to_measure(definition.space, definition.defaults, most=EVERY_SIZE)
    before = None if again else kept(key)
    if before is not None and len(before.sizes) >= len(wanted):
        note("these sizes were measured here before; --again measures them anew")
        return before, ()
    known = () if before is None else before.sizes
    sizes = f"{len(wanted)} sizes of {definition.variant}"
    begun = f", {len(known)} of which were measured here before" if known else ""
    note(f"measuring {sizes}{begun}; after {seconds:.0f} s no further one is begun")
    watch = Watch(process.subject.device)
    found = measured_costs(process, seconds=seconds, before=known)
    doubts = []
    if why := watch.finish().why:
        doubts.append(f"these figures are not to be trusted: {why}")
    if known and not any(each in known for each in found.sizes):
        default = found.sizes[0]
        took = "" if default.epoch_s is None else f" but {default.epoch_s:.3g} s an epoch"
        doubts.append(
            f"the default does not take what it took then{took}: {len(found.sizes)} sizes were "
            "measured anew"
        )
        if before is not None and len(known) > len(found.sizes):
            doubts[-1] += f"; those of then stay, {len(known)}, till --again"
            found = before
    for doubt in doubts:
        note(doubt)
    if found is not before:
        keep(key, found)
    return found, tuple(doubts)


def ended_before(
    storage: str | None, definition: StudyDefinition, searches: int
) -> list[list[Ended]]:
    """The trials that each of its `searches` has in the database that was named, where they are
    searches of the same.
    """
    from tuner.errors import EmptyDatabaseError, UsageError
    from tuner.storage.database import open_database
    from tuner.storage.url import absolute, parse_url
    from tuner.study.group import members_of, memberships

    nothing: list[list[Ended]] = [[] for _ in range(searches)]
    if not is_named(storage):
        return nothing
    address = absolute(parse_url(storage_url(storage)))
    if address.is_sqlite and not address.sqlite_path.exists():
        if storage is None:  # of the environment: it is made by the first launch
            return nothing
        raise UsageError(
            f"--storage: there is no database {address.sqlite_path}; name one that is there, or "
            "leave it out"
        )
    group = f"{definition.task_name}-{definition.variant}"
    try:
        database = open_database(address, create=False)
    except EmptyDatabaseError:
        return nothing
    with closing(database):
        there = members_of(memberships(database), group)
        return [_ended_of(database, there.get(n), definition) for n in range(1, searches + 1)]


def _ended_of(database: Database, study: str | None, definition: StudyDefinition) -> list[Ended]:
    from tuner.estimate.trials_so_far import ended_trials
    from tuner.study.open import open_study

    if study is None:
        return []
    opened = open_study(database, study)
    if opened.definition.comparable() != definition.comparable():
        note(f"study {study} has other settings than were named here: its trials do not count")
        return []
    return ended_trials(opened)
