"""Which trial of which search: what each search of a group gives, and the one of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.errors import TunerError, UsageError
from tuner.export.choice import SAME_QUALITY
from tuner.export.pick import Asked, Picked, pick_of
from tuner.pareto import Point, front_indices, knee_index
from tuner.study.group import Group
from tuner.study.snapshot import StudySnapshot


def pick_of_group(
    group: Group[StudySnapshot], wanted: Asked, read_reference: Callable[[str], StudySnapshot]
) -> tuple[StudySnapshot, Picked]:
    """The trial that is wanted, and whose it is.

    Of several searches each one's own is found first. What is recommended is the fastest of these;
    of points of fronts it is the fastest, the best, or the knee.

    Raises:
        UsageError: a trial by its number, of several searches.
        TunerError: none of them has a trial to choose, for the reasons that they give.
    """
    if group.size == 1:
        return group.members[0], pick_of(group.members[0], wanted, read_reference)
    if wanted.trial is not None:
        names = ", ".join(each.name for each in group.members)
        raise UsageError(
            f"trial {wanted.trial} of which search? name it by --study; group {group.name!r} has: "
            f"{names}"
        )
    found: list[tuple[StudySnapshot, Picked]] = []
    errors: list[TunerError] = []
    for each in group.members:
        try:
            found.append((each, pick_of(each, wanted, read_reference)))
        except UsageError:
            raise
        except TunerError as error:
            errors.append(error)
    if not found:
        raise TunerError("; ".join(dict.fromkeys(str(error) for error in errors)))
    return found[_best([_point(picked) for _, picked in found], wanted.pick)]


def _best(points: Sequence[Point], pick: str) -> int:
    rows = range(len(points))
    if pick in (SAME_QUALITY, "time"):
        return min(rows, key=lambda row: points[row])
    if pick == "mql":
        return min(rows, key=lambda row: points[row][::-1])
    front = front_indices(points)
    return front[knee_index([points[row] for row in front])]


def _point(picked: Picked) -> Point:
    if picked.expected is not None:
        return picked.expected.seconds, picked.expected.mql
    assert picked.record.values is not None, "what is picked is complete"
    seconds, mql = picked.record.values
    return seconds, mql
