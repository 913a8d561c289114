"""A trial's result from those of its seeds: what each thing comes to over all of them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from optuna.trial import TrialState

from tuner.files.kinds import In
from tuner.record import Recorded, names_in
from tuner.storage.records import TrialResult
from tuner.study.over_runs import over_runs


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
        over_runs([run.recorded for run in results]),
        stopped_by=cut.recorded.stopped_by,
        runs=runs,
    )
    return dataclasses.replace(last, values=tuple(values), recorded=recorded)


def _of_a_run(recorded: Recorded) -> dict[str, Any]:
    """What is kept of each seed's run, where a trial has several."""
    flat = recorded.to_flat()
    return {name: flat[name] for name in names_in(In.RUNS) if name in flat}
