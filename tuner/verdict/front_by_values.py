"""The front of a study by one of three kinds of values: of single runs, expected, or verified."""

from __future__ import annotations

from enum import StrEnum

from tuner.spec.objectives import values_of
from tuner.spec.pareto import Point, front_indices
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.runs_model import Front, RunsModel, front_of_runs
from tuner.verdict.verified import Verified, verified_in


class Values(StrEnum):
    """Which values say how fast and how good a configuration is."""

    SINGLE = "single"
    """Of its one run in the search; the medians where it has several."""
    EXPECTED = "expected"
    """By the model of all runs of the study."""
    VERIFIED = "verified"
    """Medians over fresh seeds; of what was verified alone."""


def expected_front(study: StudySnapshot, model: RunsModel) -> Front:
    """Of the configurations that may be chosen, by what all runs say of them."""
    points = {
        number: (float(seconds), float(mql))
        for number, seconds, mql in zip(model.trials, model.seconds, model.mql, strict=True)
    }
    return _front(study, points)


def verified_front(study: StudySnapshot) -> Front:
    """Of the configurations that may be chosen and ran on enough fresh seeds, by their medians."""
    points = {}
    for number, each in verified_in(study).items():
        if (point := _medians(each, study.definition.objectives)) is not None:
            points[number] = point
    return _front(study, points)


def single_front(study: StudySnapshot) -> Front:
    """As the search saw it."""
    return front_of_runs(study.results)


def _front(study: StudySnapshot, points: dict[int, Point]) -> Front:
    numbers = sorted(candidates_of(study) & points.keys())
    on_it = [numbers[i] for i in front_indices([points[number] for number in numbers])]
    return Front(
        tuple(study.configuration(number) for number in on_it),
        tuple(points[number] for number in on_it),
    )


def _medians(each: Verified, objectives: tuple[str, ...]) -> Point | None:
    """By the study's own objectives, as it was searched; None while there are too few runs."""
    seconds = each.of_clean(lambda run: (values_of(run, objectives) or (None, None))[0])
    mql = each.of_counted(lambda run: (values_of(run, objectives) or (None, None))[1])
    return None if seconds is None or mql is None else (seconds.estimate, mql.estimate)
