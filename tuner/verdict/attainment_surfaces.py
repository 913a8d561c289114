"""What whole searches attain: the empirical attainment surfaces of a group's fronts.

A point of a front is one configuration of one search; how fast and how good a variant can be made
is a question about searches. A search attains every point that one of its front's is no worse than
in both objectives. The points that at least k of S searches attain are bounded by a surface, and
where the searches of one group attain a point more often than those of another is a region.

The idea is da Fonseca's, Fonseca's and Hall's ("Inferential performance assessment of stochastic
optimisers and the attainment function", 2001), its use that of López-Ibáñez, Paquete and Stützle
("Exploratory analysis of stochastic local search algorithms in biobjective optimization", 2010).
All of this describes; nothing is tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import UsageError
from tuner.pareto import Point
from tuner.study.group import Group, grouped
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.fairness import refuse_different_data
from tuner.verdict.front_by_values import expected_front, single_front
from tuner.verdict.recommendation import model_of
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS

Array = np.ndarray[Any, Any]
Fronts = Sequence[Sequence[Point]]
"""Of several searches, a front each: seconds and MQL, at least one point."""

FEWEST = 2
"""Searches of each of two groups, before it says anything where one attains more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFront:
    """The front of one search."""

    study: str
    points: tuple[Point, ...]
    """Seconds and MQL, fastest first."""
    expected: bool
    """By the model of all its runs; else of single runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """The edge of what at least so many searches attain."""

    searches: int
    corners: tuple[Point, ...]
    """Fastest first; a step leads right from each, and then down to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """What the searches of one group attain."""

    name: str
    fronts: tuple[SearchFront, ...]
    surfaces: tuple[Surface, ...]
    """Of one search, of two, ... of all."""

    @property
    def best(self) -> Surface:
        """What some search attains."""
        return self.surfaces[0]

    @property
    def median(self) -> Surface:
        """What half of the searches attain, or more."""
        return self.surfaces[(len(self.surfaces) - 1) // 2]

    @property
    def worst(self) -> Surface:
        """What every search attains."""
        return self.surfaces[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Where the searches of one group attain more often than those of another."""

    low: Point
    high: Point
    """Infinite where nothing ends it."""
    difference: float
    """The share of the first group's searches that attain it, less that of the second's: -1 to
    1, never 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attained:
    """What one figure shows."""

    groups: tuple[Attainment, ...]
    regions: tuple[Region, ...]
    """Of exactly two groups of `FEWEST` searches at least; else none."""
    notes: tuple[str, ...]
    """What to know to read it, in sentences."""


def attained_by(studies: Sequence[StudySnapshot]) -> Attained:
    """The surfaces of the groups of these studies, in the order in which they are named.

    Raises:
        UsageError: the studies are on different data or minimise different things.
        StorageError: the studies of a group do not fit together.
    """
    if studies:
        _refuse_unlike(studies)
    groups, left_out = [], []
    for group in grouped(studies):
        fronts = {each.name: front_of_search(each) for each in group.members}
        left_out += [name for name, front in fronts.items() if front is None]
        if known := [front for front in fronts.values() if front is not None]:
            groups.append(
                Attainment(
                    name=_name(group),
                    fronts=tuple(known),
                    surfaces=surfaces([front.points for front in known]),
                )
            )
    regions: tuple[Region, ...] = ()
    if len(groups) == 2 and all(len(group.fronts) >= FEWEST for group in groups):  # noqa: PLR2004
        first, second = ([front.points for front in group.fronts] for group in groups)
        regions = differences(first, second)
    return Attained(groups=tuple(groups), regions=regions, notes=_notes(studies, groups, left_out))


def front_of_search(study: StudySnapshot) -> SearchFront | None:
    """What the model of all its runs expects; of single runs where too few converged for one; None
    where none did, for a search that was cut off attains nothing that is known.
    """
    if study.results.censored:
        return None
    model = model_of(study)
    found = single_front(study) if model is None else expected_front(study, model)
    if not found.points:
        return None
    return SearchFront(study=study.name, points=found.points, expected=model is not None)


def surfaces(fronts: Fronts) -> tuple[Surface, ...]:
    """What at least one of these searches attains, at least two, ... all of them."""
    import moocore

    numbered = _numbered(fronts)
    found = moocore.eaf(numbered[:, :2], numbered[:, 2])
    levels = np.rint(found[:, 2] * len(fronts) / 100).astype(int)
    return tuple(
        Surface(searches=level, corners=_points(found[levels == level]))
        for level in range(1, len(fronts) + 1)
    )


def differences(first: Fronts, second: Fronts) -> tuple[Region, ...]:
    """Where searches of the first attain more often than those of the second, and the other way
    round, as rectangles that do not overlap.
    """
    import moocore

    of_all = surfaces([*first, *second])
    if of_all[0].corners == of_all[-1].corners:  # it gives no empty answer
        return ()
    # It takes both sides for equally many searches: each is repeated until they are, which changes
    # no share.
    many = math.lcm(len(first), len(second))
    sides = (_numbered(fronts, repeats=many // len(fronts)) for fronts in (first, second))
    return tuple(
        Region(low=(left, low), high=(right, high), difference=difference / many)
        for left, low, right, high, difference in moocore.eafdiff(*sides, rectangles=True).tolist()
        if difference
    )


def _numbered(fronts: Fronts, *, repeats: int = 1) -> Array:
    """All points, each with the number of its search: (points, 3)."""
    rows = [
        (*point, number * repeats + again)
        for number, front in enumerate(fronts)
        for again in range(repeats)
        for point in front
    ]
    return np.array(rows, dtype=float)


def _points(rows: Array) -> tuple[Point, ...]:
    return tuple(sorted((float(seconds), float(mql)) for seconds, mql, _ in rows))


def _name(group: Group[StudySnapshot]) -> str:
    """One search of a group is called by its own name."""
    return group.name if group.size > 1 else group.members[0].name


def _refuse_unlike(studies: Sequence[StudySnapshot]) -> None:
    refuse_different_data(studies)
    first, *others = studies
    for each in others:
        if each.definition.objectives != first.definition.objectives:
            raise UsageError(
                f"study {first.name!r} minimises {_both(first)}, and {each.name!r} {_both(each)}: "
                "what they attain does not compare"
            )


def _both(study: StudySnapshot) -> str:
    return " and ".join(study.definition.objectives)


def _notes(
    studies: Sequence[StudySnapshot], groups: Sequence[Attainment], left_out: Sequence[str]
) -> tuple[str, ...]:
    found = []
    if alone := [group.name for group in groups if len(group.fronts) == 1]:
        of = f" Of one search: {', '.join(alone)}." if len(alone) < len(groups) else ""
        found.append(
            f"One search is one draw: another search of the same variant finds another front.{of}"
        )
    lucky = [each.study for group in groups for each in group.fronts if not each.expected]
    if lucky:
        found.append(
            f"Of single runs, which look luckier than they are, because fewer than "
            f"{LEAST_CONFIGURATIONS} configurations converged: {', '.join(lucky)}."
        )
    if left_out:
        found.append(f"Left out, for nothing converged: {', '.join(left_out)}.")
    devices = dict.fromkeys(study.device_model or "an unknown device" for study in studies)
    if len(devices) > 1:
        found.append(f"Times do not compare: they are of {' and of '.join(devices)}.")
    return tuple(found)
