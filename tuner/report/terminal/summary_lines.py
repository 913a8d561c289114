"""Lines at the end of a launch: how much there is, what has no values, what needs no network."""

from __future__ import annotations

from tuner.display.text import shown
from tuner.spec.objectives import axis_title
from tuner.storage.records import Counts
from tuner.study.baselines import baselines_of, in_words, loses
from tuner.study.results import StudyResults

GPU_HOURS = "gpu_hours_spent"
"""How a launch ends that no device hours are left for."""


def held_in_words(counts: Counts) -> str:
    """How much of what was asked for there is, and why it is not more."""
    held = f"{counts.finished} of {counts.budget} trials finished"
    if counts.finished > counts.budget:
        held = f"{counts.finished} trials finished, {counts.budget} asked for"
    if counts.time_is_up:
        held += ", and they have had the search's time"
    if counts.lacks_hours:
        held += ", and the device hours are spent"
    return held


def stopped_in_words(ended: str) -> str:
    """Of what ended before all was there, and how to go on: without its full stop."""
    more = " with a larger --max-gpu-hours" if ended == GPU_HOURS else ""
    return (
        f"stopped early ({ended.replace('_', ' ')}): the same command{more} continues where this "
        "one stopped"
    )


def without_values(results: StudyResults) -> str:
    reasons: dict[str, int] = {}
    for record in results.records:
        if record.state.name in ("FAIL", "PRUNED"):
            missed = record.recorded.target_missed
            reason = "missed target" if missed else record.recorded.stopped_by or "failed"
            reasons[reason] = reasons.get(reason, 0) + 1
    return "".join(
        f", {number} {reason.replace('_', ' ')}" for reason, number in sorted(reasons.items())
    )


def column_lines(results: StudyResults) -> list[str]:
    """The test MQL of each target column, of the best of the front, where there are several."""
    best = min(results.front, key=lambda each: each.values[1] if each.values else 0.0, default=None)
    if best is None or not best.recorded.column_test_mql:
        return []
    known = best.recorded.column_test_mql.items()
    each = [f"{shown(name)} {mql:.4g}" for name, mql in known if mql is not None]
    return [f"test MQL of trial {best.number} by target column, in its units: {', '.join(each)}"]


def baseline_lines(results: StudyResults) -> list[str]:
    """What forecasts without a network come to, and that the front's best is no better."""
    objective = results.objectives[1]
    baselines = baselines_of(results.records, objective)
    if not baselines:
        return []
    each = [f"{in_words(name)} {mql:.4g}" for name, mql in baselines.items()]
    lines = [f"without a network: {', '.join(each)} ({axis_title(objective)})"]
    points = [record.values[1] for record in results.front if record.values]
    if points and (said := loses(min(points), baselines, "the best of the front", error=objective)):
        lines.append(f"{said}.")
    return lines
