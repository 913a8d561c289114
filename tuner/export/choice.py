"""Which trial of a study: the one that a pick names
on the front within the bounds, or one by its number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from optuna.trial import TrialState

from tuner.errors import TunerError, UsageError
from tuner.pareto import knee_index
from tuner.study.results import StudyResults, TrialRecord

PICKS = ("mql", "time", "knee")

Bounds = tuple[float | None, float | None]
"""Upper bounds of the objectives, in their order."""


def _by_number(record: TrialRecord) -> str:
    return f"trial {record.number}"


def choose(
    results: StudyResults,
    name: str,
    *,
    pick: str,
    bounds: Bounds = (None, None),
    called: Callable[[TrialRecord], str] = _by_number,
) -> TrialRecord:
    """The trial that `pick` names among the front's trials within the bounds; `name` is the
    study's, for messages, in which a trial is `called` so.

    Raises:
        TunerError: no finished trial yet, none that keeps the study's limits, or none within the
            bounds (the nearest is named).
    """
    front = results.front
    if not front:
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
    within = [record for record in front if _excess(record, bounds) == 0]
    if not within:
        raise TunerError(_nobody_within(name, front, bounds, called))
    points = [record.values for record in within if record.values]
    index = {"time": 0, "mql": len(within) - 1, "knee": knee_index(points)}[pick]
    return within[index]


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


def _excess(record: TrialRecord, bounds: Bounds) -> float:
    """By how much the record's values lie beyond the bounds,
    each relative to its bound; 0 where within all.
    """
    assert record.values is not None, "the front holds complete trials"
    pairs = [
        (value, bound)
        for value, bound in zip(record.values, bounds, strict=True)
        if bound is not None
    ]
    return sum((value - bound) / (abs(bound) or 1.0) for value, bound in pairs if value > bound)


def _nobody_within(
    name: str,
    front: Sequence[TrialRecord],
    bounds: Bounds,
    called: Callable[[TrialRecord], str],
) -> str:
    nearest = min(front, key=lambda record: _excess(record, bounds))
    assert nearest.values is not None
    asked = " and ".join(
        f"{label} <= {bound:g}"
        for label, bound in zip(nearest.objectives, bounds, strict=True)
        if bound is not None
    )
    return (
        f"no configuration of study {name!r} has {asked}; the nearest is {called(nearest)} "
        f"with {nearest.values[0]:.3f} s and MQL {nearest.values[1]:.4f}"
    )
