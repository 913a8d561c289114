"""Which trial of which search: the fronts of a group's searches as one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tuner.errors import UsageError
from tuner.export.choice import Bounds, choose, trial_by_number
from tuner.study.group import Group
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.picks import picks_expected

NO_BOUNDS: Bounds = (None, None)


def choose_of(
    group: Group[StudySnapshot], *, pick: str, bounds: Bounds = NO_BOUNDS
) -> tuple[StudySnapshot, TrialRecord]:
    """The trial that `pick` names, and whose it is.

    Of one search it is on that one's front, or what its verification chose instead; of several it
    is picked from all of these together.

    Raises:
        TunerError: none of them has a trial to choose, or none within the bounds.
    """
    if group.size == 1:
        return group.members[0], _of_one(group.members[0], pick=pick, bounds=bounds)
    owners = {id(r): each for each in group.members for r in each.results.records}
    candidates = [r for each in group.members for r in _candidates(each, bounds)]
    everything = [r for each in group.members for r in each.results.records]
    pooled = dataclasses.replace(group.members[0].results, records=tuple(candidates or everything))
    record = choose(
        pooled,
        group.name,
        pick=pick,
        bounds=bounds,
        called=lambda r: f"trial {r.number} of {owners[id(r)].name}",
    )
    return owners[id(record)], record


def trial_of(group: Group[StudySnapshot], number: int) -> tuple[StudySnapshot, TrialRecord]:
    """The complete trial of that number, where the group has one search.

    Raises:
        UsageError: there is no such trial, or several searches have trials of that number.
        TunerError: it has no result.
    """
    if group.size > 1:
        names = ", ".join(each.name for each in group.members)
        raise UsageError(
            f"trial {number} of which search? name it by --study; group {group.name!r} has: {names}"
        )
    (study,) = group.members
    return study, trial_by_number(study.results, study.name, number)


def _of_one(study: StudySnapshot, *, pick: str, bounds: Bounds) -> TrialRecord:
    record = choose(study.results, study.name, pick=pick, bounds=bounds)
    expected = picks_expected(study.results, study.runs, study.name)
    if pick in expected and bounds == NO_BOUNDS:
        return trial_by_number(study.results, study.name, expected[pick])
    return record


def _candidates(study: StudySnapshot, bounds: Bounds) -> Sequence[TrialRecord]:
    expected = picks_expected(study.results, study.runs, study.name)
    if not expected or bounds != NO_BOUNDS:
        return study.results.front
    numbers = {number for pick, number in expected.items() if pick != "default"}
    return [record for record in study.results.complete if record.number in numbers]
