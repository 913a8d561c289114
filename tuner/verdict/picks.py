"""Which trials speak for a study: the ends and the knee of its front,
or what a verification chose instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tuner.config import Choice
from tuner.spec.pareto import Point, knee_index
from tuner.storage.queue.verifications import (
    CHOSEN_LATER,
    VerificationRun,
    Verifications,
    is_confirmation,
)
from tuner.study.results import StudyResults
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.runs_model import Front, front_of_runs


def picks(results: StudyResults, front: Front) -> dict[str, int]:
    """The trials that speak for a study: `default`, and the front's `time`, `knee` and `mql`."""
    found: dict[str, int] = {}
    if results.default is not None:
        found["default"] = results.default.number
    if front.trials:
        fast, knee, good = (front.trials[i].number for i in (0, knee_index(front.points), -1))
        found |= {"time": fast, "knee": knee, "mql": good}
    return found


def picks_of(study: StudySnapshot) -> dict[str, int]:
    """The trials that speak for a study in a verdict: `default`, and `time`, `knee` and `mql`.

    Where the last plan chose by what all runs expect, those that it chose; else those of the front
    as it is.
    """
    return picks_expected(study) or picks(study.results, front_of_runs(study.results))


def picks_expected(study: StudySnapshot) -> dict[str, int]:
    """What the last plan chose from the study's expected front.

    Empty where it chose from single runs, and where the study has got other limits since, which one
    of these breaks.
    """
    noted = _noted(study.runs, study.name)
    eligible = {number for each in study.results.eligible for number in each.numbers}
    kept = all(number in eligible for pick, number in noted.items() if pick != "default")
    return noted if kept else {}


def note_picks(queue: Verifications, study_id: int, study: str, picked: Mapping[str, int]) -> None:
    """Note with the study's last run what the latest plan chose,
    where that had no new run of it to say so.
    """
    mine = [run for run in choosing(queue.runs()) if run.study_id == study_id]
    if mine and _noted(mine, study) != picked:
        queue.note(mine[-1], {**mine[-1].plan, CHOSEN_LATER: {study: dict(picked)}})


def choosing(runs: Iterable[VerificationRun]) -> list[VerificationRun]:
    """Those whose plan chose something to verify: a confirmation does not."""
    return [run for run in runs if not is_confirmation(run.plan)]


def _noted(runs: Sequence[VerificationRun], study: str) -> dict[str, int]:
    runs = choosing(runs)
    plan = runs[-1].plan if runs else {}
    if CHOSEN_LATER in plan:
        return dict(plan[CHOSEN_LATER].get(study, {}))
    if plan.get("choice") not in (Choice.EXPECTED, Choice.RECOMMENDED):
        return {}
    return dict(plan.get("picks", {}).get(study, {}))


# Upper bounds of the objectives, as somebody asks for them: which points are within, and by how
# much others are not.


Bounds = tuple[float | None, float | None]
"""Of seconds and MQL; None where there is none."""
UNBOUNDED: Bounds = (None, None)


def excess(point: Point, bounds: Bounds) -> float:
    """By how much a point lies beyond the bounds, each relative to its bound; 0 where within
    all.
    """
    pairs = [
        (value, bound) for value, bound in zip(point, bounds, strict=True) if bound is not None
    ]
    return sum((value - bound) / (abs(bound) or 1.0) for value, bound in pairs if value > bound)


def bounds_in_words(bounds: Bounds, objectives: Sequence[str]) -> str:
    """`wall_clock_s <= 1.5 and test_mql <= 0.8`; empty where there are none."""
    return " and ".join(
        f"{name} <= {bound:g}"
        for name, bound in zip(objectives, bounds, strict=True)
        if bound is not None
    )
