"""Why nothing can be recommended, in words that say what to do."""

from __future__ import annotations

from tuner.errors import TunerError
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import candidates_of, converged_configurations, default_of, runs_of
from tuner.verdict.picks import Bounds, bounds_in_words, excess
from tuner.verdict.recommendation import Recommendation
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, Estimate, RunsModel

# What is expected of a configuration, and how surely, in words.


_MOST_SAID = 0.99


def in_words(estimate: Estimate) -> str:
    """A configuration and what is expected of it."""
    return f"trial {estimate.trial} (expected {estimate.seconds:.3f} s, MQL {estimate.mql:.4f})"


def too_few_runs(estimate: Estimate, sure_enough: float, least: int) -> str:
    """That a configuration is as good, surely enough, and has run less often than it takes; empty
    where it is not so.
    """
    if estimate.runs >= least or estimate.chance < sure_enough:
        return ""
    times = "once" if estimate.runs == 1 else f"{estimate.runs} times"
    return f", but it ran {times}, and {least} runs of it are needed"


def percent(chance: float) -> str:
    """A chance for a reader, who is never told that something is certain."""
    if chance > _MOST_SAID:
        return "more than 99 %"
    return "less than 1 %" if chance < 1 - _MOST_SAID else f"{100 * chance:.0f} %"


def limit_in_words(epochs: int | None) -> str:
    """Of a default that is cut off after so many, to be added to it; empty of None."""
    return "" if epochs is None else f" as its limit of {epochs} epochs leaves it"


class NoAnswerError(TunerError):
    """Nothing can be recommended, for the reason that it says."""


def why_none(study: StudySnapshot, *, default: bool = True) -> str | None:
    """Why nothing can be recommended whatever the model says, in words; None where something can.
    Quick.

    `default`: the study's own default has to be there.
    """
    if study.results.infeasible:
        return (
            f"no trial of study {study.name!r} keeps the study's limits, {study.results.limits}; "
            "launch it again with other limits, or choose a trial with --trial"
        )
    there = converged_configurations(study, runs_of(study))
    if there < LEAST_CONFIGURATIONS:
        return (
            f"of study {study.name!r} {there} configuration{'s' * (there != 1)} converged, and it "
            f"takes {LEAST_CONFIGURATIONS} to tell from luck what is as good as the default; "
            "launch more trials, or take a point of the front: --pick knee"
        )
    if default and default_of(study) is None:
        return (
            f"the default configuration of study {study.name!r} has no run that converged, or that "
            "its limit of epochs cut off, so it is not known what is as good; take a point of the "
            "front: --pick knee, or name another study's default: --against"
        )
    return None


def nothing_within(
    study: StudySnapshot,
    model: RunsModel,
    found: Recommendation,
    bounds: Bounds,
    what: str,
    least_runs: int,
) -> str:
    """Why there is no answer although there is a model, and which configuration is the nearest."""
    within = bounds_in_words(bounds, study.results.objectives)
    said = f"no configuration of study {study.name!r} is surely enough as good as {what}"
    said += f" with {within}" if within else ""
    if found.nearest is not None:
        near = found.nearest
        said = f"{said}; the nearest is {in_words(near)}, with a chance of {percent(near.chance)}"
        return said + too_few_runs(near, found.chance, least_runs)
    candidates = candidates_of(study)
    rows = [row for row, number in enumerate(model.trials) if number in candidates]
    points = {row: (float(model.seconds[row]), float(model.mql[row])) for row in rows}
    if not points:
        return f"{said}: none that may be chosen is left"
    row = min(rows, key=lambda each: excess(points[each], bounds))
    seconds, mql = points[row]
    return (
        f"{said}; the nearest to that is trial {model.trials[row]}, of which {seconds:.3f} s and "
        f"MQL {mql:.4f} are expected"
    )
