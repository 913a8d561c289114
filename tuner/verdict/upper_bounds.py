"""Upper bounds of the objectives, as somebody asks for them: which points are within, and by how
much others are not.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.pareto import Point

Bounds = tuple[float | None, float | None]
"""Of seconds and MQL; None where there is none."""
UNBOUNDED: Bounds = (None, None)


def excess(point: Point, bounds: Bounds) -> float:
    """By how much a point lies beyond the bounds, each relative to its bound; 0 where within
    all.
    """
    pairs = [
        (value, bound) for value, bound in zip(point, bounds, strict=True) if bound is not None
    ]
    return sum((value - bound) / (abs(bound) or 1.0) for value, bound in pairs if value > bound)


def bounds_in_words(bounds: Bounds, objectives: Sequence[str]) -> str:
    """`wall_clock_s <= 1.5 and test_mql <= 0.8`; empty where there are none."""
    return " and ".join(
        f"{name} <= {bound:g}"
        for name, bound in zip(objectives, bounds, strict=True)
        if bound is not None
    )
