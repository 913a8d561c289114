"""Search spaces that differ from others in a range."""

from __future__ import annotations

from typing import Any

from tuner.spec.space import SearchSpace


def with_range(space: SearchSpace, name: str, **changed: Any) -> SearchSpace:
    """`space`, with these of a range's fields changed."""
    return space.model_copy(update={name: space.ranges[name].model_copy(update=changed)})


def of_single_values(space: SearchSpace, *kept: str) -> SearchSpace:
    """`space`, whose ranges hold their highest value alone, but for those `kept`."""
    for name in space.ranges:
        if name not in kept:
            space = with_range(space, name, low=space.ranges[name].bounds()[1], zero=False)
    return space
