"""What was recorded of several runs of one configuration, as if they were one: of several seeds of
a trial, and of several trials.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tuner.files.kinds import OverSeeds
from tuner.record import MEANINGS, SCORES, Recorded


def over_runs(runs: Sequence[Recorded]) -> Recorded:
    """What each thing of the last run's record comes to over all runs."""
    last = runs[-1]
    found: dict[str, Any] = {}
    for name, meaning in MEANINGS.items():
        values = [getattr(run, name) for run in runs]
        if values[-1] is not None:
            found[name] = _COME_TO[meaning.over_seeds](values)
    for name in SCORES:
        found[name] = {
            series: _median([getattr(run, name).get(series) for run in runs])
            for series in getattr(last, name)
        }
    return dataclasses.replace(last, **found)


def _median(values: Sequence[Any]) -> Any:
    """Of counts, one that occurred; the last where a run has none."""
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return statistics.median_low(values)
    return statistics.median(values) if kinds <= {int, float} else values[-1]


_COME_TO: Mapping[OverSeeds, Callable[[Sequence[Any]], Any]] = {
    OverSeeds.MEDIAN: _median,
    OverSeeds.MIN: lambda values: min(each for each in values if each is not None),
    OverSeeds.MAX: lambda values: max(each for each in values if each is not None),
    OverSeeds.ANY: any,
    OverSeeds.ALL: all,
    OverSeeds.FIRST: lambda values: values[0],
    OverSeeds.LAST: lambda values: values[-1],
    OverSeeds.JOINED: lambda values: "; ".join(each for each in values if each),
}
