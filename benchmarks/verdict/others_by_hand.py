"""What a sensible person does without a library: a sweep over the rate, five rates once each, one
knob after the other.

All begin with the default, and know no figure of any job: rates are multiples of the default's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender
from benchmarks.verdict.truths import Training, truth
from tuner.config import Value
from tuner.spec.margin import MARGIN

Params = dict[str, Value]

SWEPT = tuple(2 ** (k / 2) for k in range(9))
"""Nine rates, to sixteen times the default's: run in turns, each turn on fresh seeds."""
FIVE = (0.1, 10**-0.5, 10**0.5, 10.0)
"""Beside the default's."""
STEPS = (0.25, 0.5, 2.0, 4.0)
"""By which a rate or a size is changed by hand."""
SHIFTS = (-0.2, -0.1, 0.1, 0.2)
"""Shares of a plain range by which a value is changed by hand."""


class Plan:
    """Runs what a plan says, one training after the other; the plan may look at what it came to."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._job = gpu, truth(gpu.name)
        self._plan = self.places()
        self._begun = False

    def places(self) -> Iterator[Place]:
        """What to train after the default."""
        raise NotImplementedError

    def suggest(self) -> list[Place]:
        if not self._begun:
            self._begun = True
            return [self._gpu.default]
        found = next(self._plan, None)
        return [] if found is None else [found]

    def tell(self, trainings: Sequence[Training]) -> None:
        del trainings  # the plan looks at what the GPU trained

    def recommended(self) -> Place | None:
        return None

    def place(self, params: Params) -> Place:
        """Where that is, or what the space has nearest to it."""
        job = self._job
        near = job.space.nearest(params, job.default)
        return tuple(job.where(dict(near))[0].tolist())

    def with_rate(self, times: float) -> Place:
        rate = float(self._job.default["learning_rate"])
        return self.place(dict(self._job.default) | {"learning_rate": rate * times})


class Sweep(Plan):
    def places(self) -> Iterator[Place]:
        first = True
        while True:
            for times in SWEPT[first:]:  # the default has run
                yield self.with_rate(times)
            first = False


class FiveRates(Plan):
    def places(self) -> Iterator[Place]:
        yield from map(self.with_rate, FIVE)


class OneKnobAtATime(Plan):
    """From the best so far each knob is changed in turn, and stays changed where one run is faster
    and within the margin; again from the first knob while there is time.
    """

    def places(self) -> Iterator[Place]:
        gpu, space = self._gpu, self._job.space
        here: Params = dict(self._job.default)
        _, best = gpu.trained[0]
        most = (1 + MARGIN) * best.mql
        while True:
            for name in space.ranges:
                base = dict(here)
                for changed in self._changes(base, name):
                    place = self.place(changed)
                    yield place
                    _, found = gpu.trained[-1]
                    if found.converged and found.mql <= most and found.seconds < best.seconds:
                        here, best = space.at(place), found

    def _changes(self, base: Params, name: str) -> Iterator[Params]:
        r = self._job.space.ranges[name]
        if name not in base:
            return
        value = base[name]
        if isinstance(value, str):
            for other in getattr(r, "choices", ()):
                if other != value:
                    yield base | {name: other}
            return
        low, high = float(getattr(r, "low", 0.0)), float(getattr(r, "high", 1.0))
        steep = name in ("learning_rate", "weight_decay", "hidden_size", "batch_size")
        for by in STEPS if steep else SHIFTS:
            moved = float(value) * by if steep else float(value) + by * (high - low)
            kept = min(max(moved, low), high)
            if kept != value:
                yield base | {name: round(kept) if isinstance(value, int) else kept}


_MADE: dict[str, type[Plan]] = {
    "sweep": Sweep,
    "five rates": FiveRates,
    "one knob": OneKnobAtATime,
}


def contender(key: str, gpu: Gpu) -> Contender:
    return _MADE[key](gpu)
