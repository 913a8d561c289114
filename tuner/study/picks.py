"""Which trials speak for a study: the ends and the knee of its front, or what a verification chose instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.pareto import knee_index
from tuner.storage import VerificationRun, Verifications
from tuner.study.fronts import Choice, Front, front_of_runs
from tuner.study.results import StudyResults

_LATER = "chosen_later"
"""In a run's plan: what a later plan, which had no new run of its study, chose from the expected front."""


def picks(results: StudyResults, front: Front) -> dict[str, int]:
    """The trials that speak for a study: `default`, and the front's `time`, `knee` and `mql`."""
    found: dict[str, int] = {}
    default = next((record.number for record in results.complete if record.is_default), None)
    if default is not None:
        found["default"] = default
    if front.trials:
        fast, knee, good = (front.trials[i].number for i in (0, knee_index(front.points), -1))
        found |= {"time": fast, "knee": knee, "mql": good}
    return found


def picks_judged(results: StudyResults, runs: Sequence[VerificationRun], study: str) -> dict[str, int]:
    """The trials that speak for a study in a verdict, by its verification `runs` in the order of their plan.

    Where the last plan chose from the expected front, those that it chose; else those of the front as it is.
    """
    return picks_expected(results, runs, study) or picks(results, front_of_runs(results))


def picks_expected(results: StudyResults, runs: Sequence[VerificationRun], study: str) -> dict[str, int]:
    """What the last plan chose from the study's expected front.

    Empty where it chose from single runs, and where the study has got other limits since, which one of these breaks.
    """
    noted = _noted(runs, study)
    eligible = {record.number for record in results.eligible}
    kept = all(number in eligible for pick, number in noted.items() if pick != "default")
    return noted if kept else {}


def note_picks(queue: Verifications, study_id: int, study: str, picked: Mapping[str, int]) -> None:
    """Note with the study's last run what the latest plan chose, where that had no new run of it to say so."""
    mine = [run for run in queue.runs() if run.study_id == study_id]
    if mine and _noted(mine, study) != picked:
        queue.note(mine[-1], {**mine[-1].plan, _LATER: {study: dict(picked)}})


def renamed(plan: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The plan of a run whose study `old` goes on as `new`: what was chosen stays known under its name."""
    changed = dict(plan)
    for key in ("picks", _LATER):
        if old in changed.get(key, {}):
            mine = changed[key][old]
            changed[key] = {**{study: theirs for study, theirs in changed[key].items() if study != old}, new: mine}
    return changed


def _noted(runs: Sequence[VerificationRun], study: str) -> dict[str, int]:
    plan = runs[-1].plan if runs else {}
    if _LATER in plan:
        return dict(plan[_LATER].get(study, {}))
    return dict(plan["picks"].get(study, {})) if plan.get("choice") == Choice.EXPECTED else {}
