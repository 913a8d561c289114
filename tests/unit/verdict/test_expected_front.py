"""The expected front: nearer to the truth than single runs, from which a search chose the lucky
ones."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.trial import TrialState

from tuner.config import Choice, Value
from tuner.record import Recorded
from tuner.search.gaussian_process import GaussianProcess
from tuner.search.sampler import SobolPoints
from tuner.spec.pareto import Point
from tuner.spec.study_file import load_study_file
from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.runs_model import LEAST_TRIALS, expected_points, front_of, front_of_runs

SPACE = load_study_file("original").space
NOISE = (0.12, 0.014)
"""A seed's, of the logarithms of time and MQL: about the reference job's."""


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
        seconds, mql = np.array(truth(params)) * np.exp(rng.normal(0, NOISE))
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


def errors(points: list[Point], trials: tuple[TrialRecord, ...]) -> np.ndarray:
    """Of log time and log MQL: root mean squares."""
    off = np.log(points) - np.log([truth(dict(trial.params)) for trial in trials])
    return np.asarray(np.sqrt(np.mean(off**2, axis=0)))


def test_what_is_expected_is_nearer_to_the_truth_than_a_single_run() -> None:
    results = searched(120)
    expected = expected_points(results.eligible, SPACE)
    assert expected is not None
    assert (
        errors(expected, results.eligible) < 0.6 * errors(results.points, results.eligible)
    ).all()


def test_the_expected_front_does_not_promise_too_much() -> None:
    results = searched(120)
    runs, front = front_of_runs(results), front_of(results, SPACE, Choice.EXPECTED)
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


def test_the_same_trials_give_the_same_front() -> None:
    assert front_of(searched(60), SPACE, Choice.EXPECTED) == front_of(
        searched(60), SPACE, Choice.EXPECTED
    )


@pytest.mark.parametrize("trials", [0, 1, LEAST_TRIALS - 1])
def test_few_trials_keep_their_own_front(trials: int) -> None:
    results = searched(trials)
    assert expected_points(results.eligible, SPACE) is None
    assert front_of(results, SPACE, Choice.EXPECTED) == front_of_runs(results)


def test_what_the_others_expect_does_not_hang_on_a_trial_s_own_value() -> None:
    """Beyond the settings, which are fitted to all: here they are the same, for the latest rows
    decide them."""
    rng = np.random.default_rng(1)
    where = rng.random((200, 2))
    values = np.sin(3 * where[:, 0]) + rng.normal(0, 0.2, 200)
    before = GaussianProcess(where, values)
    moved = values.copy()
    moved[[10, 20]] += (0.5, -0.5)  # neither their mean, nor, but for a hair, their spread
    after = GaussianProcess(where, moved)
    for row in (10, 20):
        own = abs(after.posterior(where[[row]])[0] - before.posterior(where[[row]])[0])[0]
        others = abs(after.left_out()[row] - before.left_out()[row])
        assert others < 0.2 * own
    truth = np.sin(3 * where[:, 0])
    assert np.std(before.left_out() - truth) < 0.5 * 0.2
