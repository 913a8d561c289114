"""How a search begins: as a person would, with rates around the default's, and then each other
hyperparameter by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tuner.config import Value
from tuner.spec.margin import MARGIN
from tuner.spec.pareto import Point
from tuner.spec.space import SearchSpace

BELOW, ABOVE = 2, 5
"""Doublings of the default's rate, down and up."""
DEFAULT_AGAIN = (3, 6)
"""Trials that run the default again: what is faster than one run of it may be luck."""
NEAR, FAR = 0.08, 0.4
"""How far a hyperparameter is moved by itself, as a share of its range."""
RATE = "learning_rate"
_BEGINNINGS = 0x6C616464
"""Tells these random numbers from those of asks and searches."""

ValuesOf = Callable[[Mapping[str, Value]], Point | None]
"""What a configuration's trials came to, in the mean."""


class Beginning:
    """The first trials of one search after the default; rates, steps and their order follow from
    `seed`, so that searches do not agree by construction.
    """

    def __init__(self, space: SearchSpace, default: Mapping[str, Value], *, seed: int) -> None:
        self._space, self._default = space, dict(default)
        random = np.random.default_rng([seed, _BEGINNINGS])
        self._rates = self._ladder(random)
        self._moves = self._one_by_one(random)

    def at(self, number: int, values_of: ValuesOf) -> dict[str, Value] | None:
        """What runs as the trial `number`; None from where a model takes over."""
        if number == 0 or number in DEFAULT_AGAIN:
            return dict(self._default)
        step = number - 1 - sum(again < number for again in DEFAULT_AGAIN)
        if step < len(self._rates):
            return self._default | {RATE: self._rates[step]}
        step -= len(self._rates)
        if step >= len(self._moves):
            return None
        name, shift = self._moves[step]
        return self._moved(self._best_rate(values_of), name, shift)

    def _ladder(self, random: np.random.Generator) -> list[float]:
        r = self._space.ranges.get(RATE)
        if r is None or r.single:
            return []
        offset = random.uniform(-0.5, 0.5)
        default = float(self._default[RATE])
        rates = [default * 2 ** (k + offset) for k in range(-BELOW, ABOVE + 1) if k]
        kept = [rate for rate in rates if r.outside(rate) is None]
        random.shuffle(kept)
        return kept

    def _one_by_one(self, random: np.random.Generator) -> list[tuple[str, float]]:
        found = []
        for name, r in self._space.there(self._default).items():
            if name != RATE and not r.single:
                found += [(name, side * random.uniform(NEAR, FAR)) for side in (-1.0, 1.0)]
        random.shuffle(found)
        return found

    def _best_rate(self, values_of: ValuesOf) -> dict[str, Value]:
        """The default with the fastest rate that is within the margin by what is known now."""
        best, of_default = self._default, values_of(self._default)
        if of_default is None:
            return best
        seconds, most = of_default[0], (1 + MARGIN) * of_default[1]
        for rate in self._rates:
            values = values_of(self._default | {RATE: rate})
            if values is not None and values[1] <= most and values[0] < seconds:
                best, seconds = self._default | {RATE: rate}, values[0]
        return best

    def _moved(self, base: Mapping[str, Value], name: str, shift: float) -> dict[str, Value]:
        """With one value moved: as far as it takes to be another one, and back from the end of its
        range where it would leave that.
        """
        r = self._space.ranges[name]
        encoded = self._space.encode(base)
        if r.coordinates > 1:  # of a choice another one
            others = [value for _, value in r.steps(encoded[name])]
            encoded[name] = others[0 if shift > 0 else -1]
            return self._space.only_there(self._space.decode(encoded))
        place, found = r.place(encoded[name]), dict(base)
        for far in np.arange(abs(shift), 1.0, 0.05):
            ahead = place[0] + math.copysign(far, shift)
            within = ahead if 0 <= ahead <= 1 else place[0] - math.copysign(far, shift)
            encoded[name] = r.at([min(max(within, 0.0), 1.0)])
            found = self._space.only_there(self._space.decode(encoded))
            if found[name] != base[name]:
                break
        return found
