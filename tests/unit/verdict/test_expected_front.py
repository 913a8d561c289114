"""The expected front: nearer to the truth than single runs, from which a search chose the lucky
ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from optuna.trial import TrialState

from tests.support.paths import BENCHMARKS
from tuner.config import Value
from tuner.record import Recorded
from tuner.search.sampler import SobolPoints
from tuner.spec.pareto import Point
from tuner.spec.study_file import load_study_file
from tuner.study.archive import read_archive
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.recommendation import model_of
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, expected_front, front_of_runs
from tuner.verdict.verification_plan import front_of_search

SPACE = load_study_file("original").space
NOISE, SHORT_S = (0.12, 0.014), 0.3
"""A seed's, of the logarithms of time and of a short training's MQL, and how short that is: about
the reference job's."""


def truth(params: dict[str, Value]) -> Point:
    shares = dict(zip(SPACE.ranges, SPACE.shares(params), strict=True))
    away = (shares["learning_rate"] - 0.6) ** 2 + 0.3 * (shares["dropout"] - 0.3) ** 2
    seconds = 0.3 * np.exp(1.5 * shares["hidden_size"] - 0.8 * shares["batch_size"] + away)
    return float(seconds), float(0.8 + 0.1 * away + 0.03 * (1 - shares["hidden_size"]))


def searched(trials: int) -> StudyResults:
    """Sobol points, each run once."""
    rng, sobol = np.random.default_rng(3), SobolPoints(len(SPACE.ranges), 5)
    records = []
    for number in range(trials):
        params = SPACE.at(sobol.point(number))
        seconds, mql = truth(params)
        of_time, of_mql = rng.normal(0, NOISE)
        mql *= math.exp(of_mql * (SHORT_S / seconds) ** 0.75)  # long ones are less noisy
        seconds *= math.exp(of_time)
        records.append(
            TrialRecord(
                number=number,
                state=TrialState.COMPLETE,
                params=params,
                values=(float(seconds), float(mql)),
                recorded=Recorded(converged=True),
                started=None,
                ended=None,
            )
        )
    return StudyResults(tuple(records))


def errors(points: Sequence[Point], trials: Sequence[TrialRecord]) -> np.ndarray:
    """Of log time and log MQL: root mean squares."""
    off = np.log(points) - np.log([truth(dict(trial.params)) for trial in trials])
    return np.asarray(np.sqrt(np.mean(off**2, axis=0)))


@pytest.fixture(scope="module")
def study() -> StudySnapshot:
    exported = snapshot(read_archive(BENCHMARKS / "campaign" / "etth-original.json.gz"))
    return replace(exported, results=searched(120))


def test_what_is_expected_is_nearer_to_the_truth_than_a_single_run(study: StudySnapshot) -> None:
    model = model_of(study)
    assert model is not None
    trials = [study.record(number) for number in model.trials]
    expected = list(zip(model.seconds, model.mql, strict=True))
    single = [trial.values for trial in trials if trial.values]
    assert (errors(expected, trials) < 0.65 * errors(single, trials)).all()


def test_the_expected_front_does_not_promise_too_much(study: StudySnapshot) -> None:
    runs, front = front_of_runs(study.results), front_of_search(study)
    assert front is not None
    by_runs, by_all = (
        float(
            np.mean(
                [
                    point[1] - truth(dict(trial.params))[1]
                    for trial, point in zip(*each, strict=True)
                ]
            )
        )
        for each in (runs, front)
    )
    assert by_runs < -0.005
    assert abs(by_all) < 0.3 * abs(by_runs)
    seconds, mql = zip(*front.points, strict=True)
    assert list(seconds) == sorted(seconds)
    assert list(mql) == sorted(mql, reverse=True)


def test_what_was_verified_since_changes_no_plan() -> None:
    exported = snapshot(read_archive(BENCHMARKS / "campaign" / "etth-simple.json.gz"))
    assert exported.runs
    again = front_of_search(exported)
    assert again == front_of_search(replace(exported, read_runs=tuple))
    model = model_of(exported)
    assert model is not None
    assert again != expected_front(exported, model)


def test_few_configurations_have_no_expected_front(study: StudySnapshot) -> None:
    few = replace(study, results=searched(LEAST_CONFIGURATIONS - 1))
    assert front_of_search(few) is None
    assert front_of_search(replace(study, results=searched(LEAST_CONFIGURATIONS))) is not None
