"""The sizes of a search space: those values of a configuration that change what an epoch costs.

They are the same that `auto` is measured for: all but rates and decays, which are no whole numbers.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping

import numpy as np

from tuner.config import Hyperparameters, Value
from tuner.spec.space import SearchSpace

Size = Mapping[str, int | str | bool]
"""By hyperparameter."""

MOST_LISTED = 4096
"""Of a larger space so many are drawn, spread evenly."""


def size_of(params: Mapping[str, Value]) -> dict[str, int | str | bool]:
    """The size of a configuration."""
    return {name: value for name, value in params.items() if not isinstance(value, float)}


def key_of(size: Size) -> str:
    """The same for equal sizes, whatever their order."""
    return json.dumps(dict(size), sort_keys=True)


def sizes_of(space: SearchSpace, *, most: int = MOST_LISTED) -> tuple[Size, ...]:
    """All sizes of a space, each once; of a space with more than `most` so many that are spread
    over it.
    """
    found: dict[str, Size] = {}
    for params in _all(space, most) or _drawn(space, most):
        size = size_of(space.only_there(params))
        found[key_of(size)] = size
    return tuple(found.values())


def hyperparameters_of(
    size: Size, space: SearchSpace, defaults: Hyperparameters
) -> Hyperparameters:
    """A configuration of this size, else as the default."""
    params = space.nearest(dict(size), defaults.as_dict())
    return Hyperparameters.of(params, defaults.of_training)


def to_measure(space: SearchSpace, defaults: Hyperparameters, *, most: int) -> tuple[Size, ...]:
    """The sizes to measure, the most telling first: the default, the cheapest and the dearest
    corner, the default with each value at its ends, and then what is farthest from all before.

    All sizes are among them where there are no more than `most`.
    """
    everything = sizes_of(space)
    default = size_of(defaults.as_dict())
    places = {key_of(each): _place(each, everything) for each in (default, *everything)}
    first = [default, *_corners(everything), *_ends(default, everything)]
    chosen: dict[str, Size] = {}
    for each in first:
        if len(chosen) < most and key_of(each) in places:
            chosen[key_of(each)] = each
    left = {key_of(each): each for each in everything if key_of(each) not in chosen}
    away = {
        key: min(float(np.abs(places[key] - places[other]).sum()) for other in chosen)
        for key in left
    }
    while left and len(chosen) < most:
        key = max(left, key=lambda each: away[each])
        chosen[key] = left.pop(key)
        for other in left:
            away[other] = min(away[other], float(np.abs(places[key] - places[other]).sum()))
    return tuple(chosen.values())


def largest_size(space: SearchSpace) -> Size:
    """The size whose numbers are all largest."""
    return _corners(sizes_of(space))[1]


def _all(space: SearchSpace, most: int) -> list[dict[str, Value]]:
    """Every combination of values that are no fractions; nothing where there are more."""
    values: dict[str, tuple[Value, ...]] = {}
    for name, r in space.ranges.items():
        if r.levels is None:
            continue
        number = r.levels
        if math.prod([number, *map(len, values.values())]) > most:
            return []
        values[name] = tuple(r.decode(r.spread((n + 0.5) / number)) for n in range(number))
    return [
        dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())
    ]


def _drawn(space: SearchSpace, most: int) -> Iterator[dict[str, Value]]:
    """Additive recurrence with the roots of a polynomial (Roberts 2018): evenly spread, and always
    the same.
    """
    root = 2.0
    for _ in range(32):
        root = (1 + root) ** (1 / (space.dimensions + 1))
    steps = [root ** -(n + 1) for n in range(space.dimensions)]
    for n in range(most):
        yield space.at([(0.5 + (n + 1) * step) % 1.0 for step in steps])


def _corners(everything: tuple[Size, ...]) -> list[Size]:
    """The size with all numbers smallest, and the one with all largest."""
    return [
        min(everything, key=lambda each: _total(each, sign=1)),
        min(everything, key=lambda each: _total(each, sign=-1)),
    ]


def _ends(default: Size, everything: tuple[Size, ...]) -> list[Size]:
    """The default with one value changed, as far as it goes; each choice once."""
    known = {key_of(each): each for each in everything}
    found = []
    for name in default:
        values = {each[name] for each in everything if name in each}
        numbers = sorted(v for v in values if isinstance(v, int) and not isinstance(v, bool))
        ends = [numbers[0], numbers[-1]] if len(numbers) == len(values) else list(values)
        for value in sorted(ends, key=str):
            key = key_of({**default, name: value})
            if key in known:
                found.append(known[key])
    return found


def _total(size: Size, *, sign: int) -> float:
    return sum(
        sign * math.log(max(value, 1))
        for value in size.values()
        if isinstance(value, int) and not isinstance(value, bool)
    )


def _place(size: Size, everything: tuple[Size, ...]) -> np.ndarray:
    """Where a size lies, every hyperparameter from 0 to 1; what is not there lies in the middle."""
    names = sorted({name for each in everything for name in each})
    found = []
    for name in names:
        values = sorted({each[name] for each in everything if name in each}, key=_order)
        at = values.index(size[name]) if name in size and size[name] in values else None
        found.append(0.5 if at is None else (at + 0.5) / len(values))
    return np.array(found)


def _order(value: int | str | bool) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, int) else (0.0, str(value))
