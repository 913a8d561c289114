"""What a study recommends: of the configurations that are, as far as all its runs can say, as good
as the default one, that by which most time is expected to be saved once it is confirmed.

The fastest of these is hardly ever within the margin by enough for a confirmation to succeed, and
what is not confirmed saves nothing (docs/decisions/0008).

A search tries each configuration once, so the best it has seen is the luckiest. All runs of a
study, of its search and of its verification, make one model (`tuner.verdict.runs_model`), which
says how surely each configuration is as good. "As good" means: MQL at most (1 + margin) times the
default's. How often what is recommended is truly as good, and how the constants were found:
benchmarks/verdict.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import TunerError
from tuner.spec.margin import CONFIRMATION_SEEDS, LEAST_RUNS, MARGIN
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import candidates_of, converged_configurations, default_of, runs_of
from tuner.verdict.picks import Bounds, bounds_in_words, excess
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, Estimate, RunsModel

Array = np.ndarray[Any, Any]

CHANCE = 0.95
"""How surely a configuration must be within the margin to be recommended."""
VERIFIED, VERIFIED_SEEDS, ROUNDS = 6, 6, 3
"""Before a recommendation: in so many rounds so many configurations, and the default, run again on
so many fresh seeds each."""

_SURE = 0.99
_DRAWS = 1000
_SEED = 20261122


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The best configuration that is as good as it was asked to be; `chosen` is None where none is,
    surely enough.

    `nearest` is the one with the best chance then, None where one was chosen or there is none to
    name.
    """

    chosen: Estimate | None
    nearest: Estimate | None
    default: Estimate | None
    chance: float
    """How surely it had to be."""


def model_of(study: StudySnapshot) -> RunsModel | None:
    """The model of all runs of a study; None where they are too few."""
    runs = runs_of(study)
    enough = converged_configurations(study, runs) >= LEAST_CONFIGURATIONS
    return RunsModel(runs, default_of(study)) if enough else None


def recommend(
    model: RunsModel,
    *,
    margin: float = MARGIN,
    chance: float = CHANCE,
    least_runs: int = 1,
    candidates: Collection[int] | None = None,
) -> Recommendation:
    """Of the configurations that are as good as the default, and faster: the one with the most time
    to save, as a logarithm, times the chance that a confirmation succeeds.

    Args:
        model: of the study's runs.
        margin: how much higher its MQL may be, relative.
        chance: how surely.
        least_runs: how often it must have run itself: `LEAST_RUNS` once a verification has run,
            for a surface may be rougher than the model believes.
        candidates: trials that may be recommended, such as those within the study's limits; all
            where None.
    """
    chances = model.chance_of_default(margin)
    assert model.default is not None, "or there were no chances"
    row = model.row_of_default()
    saved = np.log(model.seconds[row] / model.seconds)
    worth = saved * model.chance_to_confirm(margin, CONFIRMATION_SEEDS)
    chosen, nearest = _chosen(model, chances, model.faster(candidates), chance, least_runs, worth)
    default = model.estimate(model.default, chances)
    return Recommendation(chosen=chosen, nearest=nearest, default=default, chance=chance)


def recommend_at(
    model: RunsModel,
    level: float,
    *,
    error: float = 0.0,
    chance: float = CHANCE,
    least_runs: int = 1,
    candidates: Collection[int] | None = None,
) -> Recommendation:
    """The fastest configuration whose MQL is at most `level`, be it the default or another.

    `error` is the level's own relative standard error, where it was measured.
    """
    chances = model.chance_of_level(level, error=error)
    may = model.among(candidates)
    chosen, nearest = _chosen(model, chances, may, chance, least_runs, -model.seconds)
    default = None if model.default is None else model.estimate(model.default, chances)
    return Recommendation(chosen=chosen, nearest=nearest, default=default, chance=chance)


def to_verify(
    model: RunsModel,
    count: int,
    *,
    margin: float = MARGIN,
    candidates: Collection[int] | None = None,
) -> tuple[int, ...]:
    """The `count` configurations that are most worth running again, the most worthwhile first; the
    default is not among them and should run with them.

    Of many draws of what may be true, the expected gain is the logarithm of how much faster than
    the default the fastest of the chosen is that is as good. The first is the one that gains most
    by itself, each further one what gains most beside those: neither the luckiest end, which is
    hardly ever as good, nor what is surely as good and slow. What is known has run `LEAST_RUNS`
    times and is surely as good: it need not run again, and others have to be faster.
    """
    chances = model.chance_of_default(margin)
    row = model.row_of_default()
    faster = model.faster(candidates)
    known = faster & (model.runs >= LEAST_RUNS) & (chances >= _SURE)
    may = np.flatnonzero(faster & ~known)
    seconds, mql = model.draws(_DRAWS, _SEED)
    good = mql <= mql[:, [row]] + math.log1p(margin)
    gains = np.where(good, np.maximum(seconds[:, [row]] - seconds, 0.0), 0.0)
    so_far = gains[:, known].max(axis=1, initial=0.0)
    chosen: list[int] = []
    while len(chosen) < min(count, len(may)):
        with_each = np.maximum(gains[:, may], so_far[:, None]).mean(axis=0)
        with_each[np.isin(may, chosen)] = -1.0
        best = int(may[int(np.argmax(with_each))])
        chosen.append(best)
        so_far = np.maximum(so_far, gains[:, best])
    return tuple(model.trials[i] for i in chosen)


def _chosen(
    model: RunsModel, chances: Array, may: Array, chance: float, least_runs: int, worth: Array
) -> tuple[Estimate | None, Estimate | None]:
    """The one that is worth most of those that are sure; where none is, the nearest."""
    rows = np.flatnonzero(may)
    sure = [row for row in rows if chances[row] >= chance and model.runs[row] >= least_runs]
    if sure:
        best = max(sure, key=lambda row: float(worth[row]))
        return model.estimate(model.trials[best], chances), None
    if not len(rows):
        return None, None
    return None, model.estimate(model.trials[rows[int(np.argmax(chances[rows]))]], chances)


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


def nothing_expected(study: StudySnapshot) -> str:
    """Why nothing can be expected of a study, without a full stop."""
    there = converged_configurations(study, runs_of(study))
    return (
        f"expected values take {LEAST_CONFIGURATIONS} configurations that converged, and study "
        f"{study.name!r} has {there}"
    )


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
