"""The Gaussian process, the expected growth of the hypervolume, and what is asked for by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tuner.search.acquisition import ImprovementSampler, _Growth
from tuner.search.gaussian_process import GaussianProcess
from tuner.search.history import TrialHistory, corner_of, within
from tuner.search.sampler import EncodedSampler, SobolPoints
from tuner.spec.pareto import hypervolume
from tuner.spec.study_file import load_study_file

FILE = load_study_file("rmsnorm")
SPACE = FILE.space
DEFAULT = FILE.default_hyperparameters().as_dict()


def values_of(params: dict[str, Any]) -> tuple[float, float]:
    """Wider is slower and better; the rate has its best place, away from the default's; everything
    else is nothing."""
    off = np.log10(params["learning_rate"] / 1e-3)
    return params["hidden_size"] / 64, 0.80 + 0.01 * off**2 + 0.64 / params["hidden_size"]


def finished(count: int) -> list[Any]:
    """The default, then points of a Sobol sequence, as a history shows them."""
    points = SobolPoints(5, 5)
    study = optuna.create_study(directions=["minimize", "minimize"])
    for params in [DEFAULT, *(SPACE.at(points.point(i)) for i in range(count - 1))]:
        study.add_trial(
            create_trial(
                params=SPACE.held(params), distributions=SPACE.stored(), values=values_of(params)
            )
        )
    return study.trials


def shares(trials: list[Any]) -> Any:
    return np.array([SPACE.shares(trial.params) for trial in trials])


def test_a_process_learns_a_function_from_noisy_values_and_says_how_sure_it_is() -> None:
    random = np.random.default_rng(0)
    x, new = random.random((80, 3)), random.random((200, 3))

    def function(x: Any) -> Any:
        return 5 + np.sin(4 * x[:, 0]) + x[:, 1] ** 2

    process = GaussianProcess(x, function(x) + random.normal(0, 0.1, 80))
    mean, sd = process.posterior(new)
    off = mean - function(new)
    assert np.sqrt(np.mean(off**2)) < 0.15  # the function's own spread is 0.7
    assert np.mean(np.abs(off) < 2 * sd) > 0.85
    assert process.mean(new) == pytest.approx(mean)
    assert process.posterior(np.full((1, 3), 3.0))[1] > 3 * sd.mean()  # far away nothing is known


def test_the_settings_are_the_most_probable_ones() -> None:
    random = np.random.default_rng(1)
    x = random.random((100, 2))
    process = GaussianProcess(x, np.sin(9 * x[:, 0]) + random.normal(0, 0.3, 100))
    lengths, share = 1 / process._shrink, process._noise
    assert lengths[1] > 1.5 * lengths[0]  # nothing depends on the second coordinate
    assert share == pytest.approx(0.09 / (0.5 + 0.09), rel=0.6)


def test_what_is_believed_makes_sure_and_changes_no_expectation() -> None:
    random = np.random.default_rng(2)
    x, here, there = random.random((30, 2)), np.array([[0.5, 0.5]]), random.random((20, 2))
    process = GaussianProcess(x, x.sum(axis=1))
    before, unsure = process.posterior(np.vstack([here, there]))
    process.believe(here)
    after, sure = process.posterior(np.vstack([here, there]))
    assert after == pytest.approx(before, abs=1e-6)
    assert sure[0] < 0.9 * unsure[0]
    assert (sure <= unsure + 1e-9).all()


def test_the_expected_growth_is_that_of_many_draws() -> None:
    trials = finished(30)
    x = shares(trials)
    corner = corner_of(values_of(DEFAULT))
    growth = _Growth(x, trials, x[:0], corner, None)
    everywhere = np.random.default_rng(3).random((200, 5))
    here = everywhere[np.argsort(growth.of(everywhere))[-50::10]]  # where it grows at all
    times, mqls = growth._time.posterior(here), growth._mql.posterior(here)
    random = np.random.default_rng(4)
    volume = hypervolume(growth._front, corner)
    for i, expected in enumerate(growth.of(here)):
        t = np.exp(random.normal(times[0][i], times[1][i], 4000))
        q = random.normal(mqls[0][i], mqls[1][i], 4000)
        drawn = [
            hypervolume([*growth._front, point], corner) - volume
            for point in zip(t, q, strict=True)
        ]
        assert expected > 0
        assert expected == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 4000**0.5)


def asked(
    trials: list[Any], count: int, history: TrialHistory | None = None
) -> list[dict[str, Any]]:
    """What the sampler asks for after these trials, with `count` seeds."""
    history = history or TrialHistory(SPACE)
    history.update(trials, asking=len(trials))
    corner = corner_of(values_of(DEFAULT))
    found = []
    for seed in range(count):
        sampler = ImprovementSampler(SPACE, seed=seed, corner=corner, default=DEFAULT)
        encoded, _ = history.ask(sampler, len(trials), jointly=True, shown=list)
        found.append(SPACE.decode(encoded))
    return found


def test_it_asks_where_the_hypervolume_grows() -> None:
    trials = finished(24)
    corner = corner_of(values_of(DEFAULT))
    seen = [values_of(trial.params) for trial in trials]
    random = [values_of(SPACE.at(SobolPoints(5, 77).point(i))) for i in range(40)]
    volume = hypervolume(seen, corner)
    by_chance = np.mean([hypervolume([*seen, point], corner) - volume for point in random])
    gained = np.mean(
        [hypervolume([*seen, values_of(p)], corner) - volume for p in asked(trials, 5)]
    )
    assert gained > 3 * by_chance


def test_it_keeps_limits() -> None:
    trials = finished(24)
    assert max(params["hidden_size"] for params in asked(trials, 5)) > 32
    # A limit that only the narrowest networks keep, the default not among them.
    limited = TrialHistory(
        SPACE, violations=lambda values, _recorded: {"max_time": values[0] / 0.6 - 1.0}
    )
    assert {params["hidden_size"] for params in asked(trials, 5, limited)} == {32}


def test_workers_that_ask_together_are_not_sent_to_one_place() -> None:
    study = optuna.create_study(
        directions=["minimize", "minimize"],
        sampler=EncodedSampler(SPACE, "alternate", seed=1, default=DEFAULT),
    )
    for trial in finished(24):
        study.add_trial(trial)
    first, _, third = (study.ask(SPACE.stored()) for _ in range(3))  # the second is TPE's
    apart = np.abs(np.array(SPACE.shares(first.params)) - SPACE.shares(third.params))
    assert apart.max() > 0.05


def test_without_a_finished_default_it_asks_all_the_same() -> None:
    study = optuna.create_study(
        directions=["minimize", "minimize"],
        sampler=EncodedSampler(SPACE, "alternate", seed=1, default=DEFAULT),
    )
    for trial in finished(24)[1:]:
        study.add_trial(trial)
    study.sampler = EncodedSampler(SPACE, "alternate", seed=1)
    assert [SPACE.contains(SPACE.true(study.ask(SPACE.stored()).params)) for _ in range(2)] == [
        [],
        [],
    ]


def test_what_nobody_would_choose_is_shown_behind_everything_else() -> None:
    trials = finished(40)
    trials[3].values = [0.001, 99.0]  # fast, and of no use
    corner = corner_of(values_of(DEFAULT))
    shown = within(trials, corner)
    inside = [all(v <= c for v, c in zip(t.values, corner, strict=True)) for t in trials]
    assert 3 < sum(inside) < 40
    for before, after, here in zip(trials, shown, inside, strict=True):
        assert (before is after) == here
        assert here or all(v > c for v, c in zip(after.values, corner, strict=True))
    assert trials[3].values == [0.001, 99.0]
    assert max(shown, key=lambda trial: trial.values[0]).number == 3
    assert within(trials, None) is trials
    assert {trial.state for trial in shown} == {TrialState.COMPLETE}
