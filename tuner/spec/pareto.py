"""Pareto fronts of minimised objectives: the front, its knee, its hypervolume."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Point = tuple[float, float]


def front_indices(points: Sequence[Point]) -> list[int]:
    """Indices of the non-dominated points, by ascending first objective;
    of equal points the first is kept.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i], i))
    front: list[int] = []
    best = float("inf")
    for i in order:
        if points[i][1] < best:
            front.append(i)
            best = points[i][1]
    return front


def knee_index(points: Sequence[Point]) -> int:
    """The point of a front that gives most of both: nearest the ideal point once each objective
    spans 0 to 1.

    Raises:
        ValueError: there are no points.
    """
    if not points:
        raise ValueError("a knee needs at least one point")
    values = np.asarray(points, dtype=float)
    span = values.max(axis=0) - values.min(axis=0)
    scaled = (values - values.min(axis=0)) / np.where(span > 0, span, 1.0)
    return int(np.argmin(np.linalg.norm(scaled, axis=1)))


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Area dominated by `points` and bounded by `reference` (seconds times MQL);
    0 when no point is below it.
    """
    import moocore

    inside = [p for p in points if p[0] < reference[0] and p[1] < reference[1]]
    if not inside:
        return 0.0
    return float(
        moocore.hypervolume(np.asarray(inside, dtype=float), ref=np.asarray(reference, dtype=float))
    )


def reference_point(points: Sequence[Point]) -> Point:
    """One tenth beyond the worst value of each objective:
    the customary reference where none was registered.
    """
    values = np.asarray(points, dtype=float)
    worst = values.max(axis=0)
    return float(worst[0] * 1.1), float(worst[1] * 1.1)


def hypervolume_trace(
    points: Sequence[Point], reference: Point, of: Sequence[Hashable] | None = None
) -> list[float]:
    """The hypervolume after each of `points`, in their order;
    it is computed anew only where the front moves.

    `of` says of what each one is: a later point of the same takes the place of the earlier one, and
    the volume may fall. Without it, each is of something else.
    """
    trace: list[float] = []
    front: list[Point] = []
    volume = 0.0
    latest: dict[Hashable, Point] = {}
    for name, point in zip(range(len(points)) if of is None else of, points, strict=True):
        again = name in latest
        latest[name] = point
        if again or not any(other[0] <= point[0] and other[1] <= point[1] for other in front):
            there = list(latest.values())
            front = [there[i] for i in front_indices(there)]
            volume = hypervolume(front, reference)
        trace.append(volume)
    return trace
