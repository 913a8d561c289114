"""A finished trial as a sampler sees it beside the others: each has something to teach."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from tuner.config import StopReason
from tuner.pareto import Point
from tuner.record import Recorded
from tuner.search.past_runs import Place


@dataclass(frozen=True, slots=True)
class Seen:
    """A finished trial to learn from. `values` is None where they are the worst of the others.

    Of a pruned trial they are a bound only: its MQL is shown as no better than that of the middling
    complete trial. The bound itself lies on the front, and a model would look about it for what is
    better still.
    """

    trial: FrozenTrial
    values: Point | None
    recorded: Recorded
    place: Place
    measured: bool
    """It is complete: its values are what it came to."""

    @property
    def pruned(self) -> bool:
        return self.values is not None and self.recorded.stopped_by == StopReason.PRUNED


def filled(learnt: Sequence[Seen]) -> list[Point]:
    """The values that each of these trials is seen with beside the others."""
    known = [seen.values for seen in learnt if seen.values is not None]
    if not known:
        return []
    worst = max(value[0] for value in known), max(value[1] for value in known)
    whole = [s.values for s in learnt if s.values is not None and not s.pruned] or known
    middling = statistics.median(mql for _, mql in whole)
    found: list[Point] = []
    for seen in learnt:
        if seen.values is None:
            found.append(worst)
        elif seen.pruned:
            found.append((seen.values[0], max(seen.values[1], middling)))
        else:
            found.append(seen.values)
    return found
