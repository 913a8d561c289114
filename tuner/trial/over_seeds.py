"""A trial's result from those of its seeds: what each thing comes to over all of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.trial import TrialState

from tuner.record import MEANINGS, In, OverSeeds, Recorded, names_in
from tuner.storage.records import TrialResult


def combined(results: Sequence[TrialResult], seeds: int) -> TrialResult:
    """A trial's result from those of its seeds: values and figures are medians over the seeds.

    Where one did not complete, it is the last, and the trial's outcome is its outcome.
    """
    if seeds == 1:
        return results[0]
    last = results[-1]
    runs = [_of_a_run(run.recorded) for run in results]
    if last.state is not TrialState.COMPLETE:
        return dataclasses.replace(last, recorded=dataclasses.replace(last.recorded, runs=runs))
    values = [
        statistics.median(each) for each in zip(*(run.values or () for run in results), strict=True)
    ]
    cut = next((run for run in results if not run.recorded.converged), last)
    recorded = dataclasses.replace(
        _over_seeds([run.recorded for run in results]),
        stopped_by=cut.recorded.stopped_by,
        runs=runs,
    )
    return dataclasses.replace(last, values=tuple(values), recorded=recorded)


def _of_a_run(recorded: Recorded) -> dict[str, Any]:
    """What is kept of each seed's run, where a trial has several."""
    flat = recorded.to_flat()
    return {name: flat[name] for name in names_in(In.RUNS) if name in flat}


def _over_seeds(runs: Sequence[Recorded]) -> Recorded:
    """What each thing of the last seed's record comes to over all seeds."""
    last = runs[-1]
    found: dict[str, Any] = {}
    for name, meaning in MEANINGS.items():
        values = [getattr(run, name) for run in runs]
        if values[-1] is not None:
            found[name] = _COME_TO[meaning.over_seeds](values)
    for name in ("series_test_mql", "series_val_mql"):
        found[name] = {
            series: _median([getattr(run, name).get(series) for run in runs])
            for series in getattr(last, name)
        }
    return dataclasses.replace(last, **found)


def _median(values: Sequence[Any]) -> Any:
    """Of counts, one that occurred; the last where a seed has none."""
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
