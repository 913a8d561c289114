"""The defaults of a study file, which are the first trial of its study: are they in its space?"""

from __future__ import annotations

from tuner.spec.configuration import Configuration
from tuner.spec.ranges.integers import IntRange, SizeRange
from tuner.spec.space import SearchSpace


def wrong_default(space: SearchSpace, defaults: Configuration) -> str | None:
    """What is wrong with the first of them that cannot be tried, with the remedy; else None.

    A whole number with a point is refused, too: a network would be given 2.0 for its depth.
    """
    outside = space.contains(defaults.values())
    if outside:
        name, _, wrong = outside[0].partition(" ")
        remedy = "so change them, or widen the range"
        if wrong == "is missing":
            remedy = "so add it"
        elif wrong.startswith("is there only where"):
            remedy = "so leave it out"
        return f"defaults.{name}: {name} {wrong}; the defaults are the first trial, {remedy}"
    for name, value in defaults.own.items():
        whole = isinstance(space.own[name], IntRange | SizeRange)
        if whole and isinstance(value, float):
            return (
                f"defaults.{name}: {name} = {value} has a point, and [space.{name}] is of whole "
                f"numbers; write {value:.0f}"
            )
    return None
