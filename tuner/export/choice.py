"""Which trial of a study: the one that a pick names on a front within the bounds, or one by its
number.
"""

from __future__ import annotations

from optuna.trial import TrialState

from tuner.errors import TunerError, UsageError
from tuner.pareto import knee_index
from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.expected_front import Front, front_of_runs
from tuner.verdict.upper_bounds import UNBOUNDED, Bounds, bounds_in_words, excess

SAME_QUALITY = "same-quality"
"""The pick of what is recommended; the others name a point of the front."""
PICKS = (SAME_QUALITY, "mql", "time", "knee")


def choose(
    results: StudyResults,
    name: str,
    *,
    pick: str,
    bounds: Bounds = UNBOUNDED,
    front: Front | None = None,
) -> TrialRecord:
    """The trial that `pick` names among the trials within the bounds of a front, that of single
    runs if no other is given; `name` is the study's, for messages.

    Raises:
        TunerError: no finished trial yet, none that keeps the study's limits, or none within the
            bounds (the nearest is named).
    """
    refuse_nothing(results, name)
    front = front or front_of_runs(results)
    rows = [row for row, point in enumerate(front.points) if excess(point, bounds) == 0]
    if not rows:
        raise TunerError(_nobody_within(results, name, front, bounds))
    index = {
        "time": 0,
        "mql": len(rows) - 1,
        "knee": knee_index([front.points[row] for row in rows]),
    }[pick]
    return front.trials[rows[index]]


def refuse_nothing(results: StudyResults, name: str) -> None:
    """Raises TunerError where there is no trial yet to choose, or none that keeps the study's
    limits.
    """
    if not results.front:
        running = results.of_state(TrialState.RUNNING)
        ended = results.of_state(TrialState.PRUNED, TrialState.FAIL)
        raise TunerError(
            f"study {name!r} has no finished trial to choose from yet "
            f"({running} running, {ended} ended without a result); try again later"
        )
    if results.infeasible:
        raise TunerError(
            f"no trial of study {name!r} keeps the study's limits, {results.limits}; "
            "launch it again with other limits, or choose a trial with --trial"
        )


def trial_by_number(results: StudyResults, name: str, number: int) -> TrialRecord:
    """The complete trial of that number, on the front or not.

    Raises:
        UsageError: there is no such trial (the nearest complete one is named).
        TunerError: it has no result: it runs, waits, was pruned or failed.
    """
    complete = [record.number for record in results.complete]
    nearest = min(complete, key=lambda other: (abs(other - number), other), default=None)
    hint = (
        "no trial is complete yet"
        if nearest is None
        else f"the nearest complete one is trial {nearest}"
    )
    record = next((record for record in results.records if record.number == number), None)
    if record is None:
        raise UsageError(
            f"study {name!r} has no trial {number}; it has {len(results.records)}, and {hint}"
        )
    if record.number not in complete:
        how = record.recorded.failure or record.recorded.stopped_by or "it has not ended"
        raise TunerError(
            f"trial {number} of study {name!r} is {record.state.name}, not COMPLETE ({how}); {hint}"
        )
    return record


def _nobody_within(results: StudyResults, name: str, front: Front, bounds: Bounds) -> str:
    if not front.points:
        return f"no configuration of study {name!r} may be chosen: each missed on a fresh seed"
    row = min(range(len(front.points)), key=lambda each: excess(front.points[each], bounds))
    seconds, mql = front.points[row]
    return (
        f"no configuration of study {name!r} has {bounds_in_words(bounds, results.objectives)}; "
        f"the nearest is trial {front.trials[row].number} with {seconds:.3f} s and MQL {mql:.4f}"
    )
