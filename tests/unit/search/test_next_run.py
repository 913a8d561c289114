"""A sampler that expects noise: it runs promising configurations again, each time on a new seed."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.study import Study
from optuna.trial import TrialState, create_trial

from tests.support.noisy_surface import (
    DEFAULT,
    SPACE,
    Violations,
    asked,
    begun,
    measured,
    sampler,
    searched,
    true_seconds,
    worth,
)
from tests.support.spaces import of_single_values
from tuner.search import next_run
from tuner.search.beginning import Beginning
from tuner.search.history import TrialHistory, configuration
from tuner.search.methods import AUTO, STARTUP, method_of
from tuner.search.next_run import Believed, Candidates, Known, NextRun
from tuner.search.next_run_model import Fits, fitted_until
from tuner.search.past_runs import Configurations, PastRun, place_of
from tuner.search.sampler import EncodedSampler
from tuner.spec.margin import MARGIN
from tuner.spec.membership import root_of, seed_of_trial


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(scope="module")
def filled() -> Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return searched(150)


def test_promising_configurations_run_again_and_the_best_most_often(filled: Study) -> None:
    counts = Counter(configuration(params) for params in asked(filled))
    params = {configuration(p): p for p in asked(filled)}
    default = configuration(DEFAULT)
    assert 40 < len(counts) < 125
    assert counts[default] >= 4
    best = max(worth(p) for p in params.values())
    often = [here for here, _ in counts.most_common(5) if here != default][:3]
    assert all(counts[here] >= 4 for here in often)
    assert all(worth(params[here]) > 0.6 * best for here in often)
    once = [worth(params[here]) for here, count in counts.items() if count == 1]
    assert np.mean(once) < 0.75 * np.mean([worth(params[here]) for here in often])


def test_each_run_of_a_configuration_has_a_seed_of_its_own(filled: Study) -> None:
    counts = Counter(configuration(params) for params in asked(filled))
    here = counts.most_common(1)[0][0]
    numbers = [t.number for t in filled.trials if configuration(SPACE.true(t.params)) == here]
    assert len(numbers) > 3
    assert len({seed_of_trial(n, root=root_of("small")) for n in numbers}) == len(numbers)


def test_it_begins_as_a_person_would(filled: Study) -> None:
    beginning = Beginning(SPACE, DEFAULT, seed=3)
    history = TrialHistory(SPACE)
    for number, params in enumerate(asked(filled)[:STARTUP]):
        history.update(filled.trials[:number], asking=number)
        assert params == beginning.at(number, history.values_of)


def test_nothing_that_is_kept_between_two_asks_changes_an_answer(filled: Study) -> None:
    assert asked(searched(45, restarted=True)) == asked(filled)[:45]
    assert asked(searched(30, seed=4)) != asked(filled)[:30]


def test_settings_are_fitted_again_now_and_then() -> None:
    at = sorted({fitted_until(runs) for runs in range(11, 301)})
    assert at[0] == 11
    assert all(b - a <= 40 for a, b in itertools.pairwise(at))
    assert len(at) < 30
    assert all(fitted_until(runs) <= runs for runs in range(11, 301))


def past(study: Study) -> list[PastRun]:
    history = TrialHistory(SPACE)
    history.update(study.trials, asking=len(study.trials))
    return history.past_runs()


def test_a_run_that_has_not_ended_is_worth_less_a_second_time(filled: Study) -> None:
    runs, default = past(filled), place_of(SPACE, DEFAULT)
    fitted = Fits().of(runs, default)
    ran = Configurations.of(runs, default)
    rows, nothing = np.arange(len(ran.runs)), np.empty((0, 5))
    before = Candidates(Believed.of(runs, [], default, fitted, MARGIN), rows, nothing)
    best = int(np.argmax(before.gain_per_second()))
    place = tuple(ran.where[best].tolist())
    gains = [before.gain_per_second()[best]]
    for count in (1, 5, 30):
        believed = Believed.of(runs, [place] * count, default, fitted, MARGIN)
        assert believed.ran.runs[best] == ran.runs[best] + count
        mean = believed.mql.of(rows, nothing).mean
        assert mean == pytest.approx(_mean(runs, fitted, rows), abs=1e-6), "nothing is known yet"
        gains.append(Candidates(believed, rows, nothing).gain_per_second()[best])
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] < 0.5 * gains[0]


def _mean(runs: Sequence[PastRun], fitted: Any, rows: Any) -> Any:
    believed = Believed.of(runs, [], place_of(SPACE, DEFAULT), fitted, MARGIN)
    return believed.mql.of(rows, np.empty((0, 5))).mean


def of_one_configuration(filled: Study, trials: int) -> int:
    """Of eight trials that are asked for together after so many, how many are the same."""
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    study.add_trials(filled.trials[:trials])
    together = Counter(configuration(study.ask(SPACE.stored()).params) for _ in range(8))
    return max(together.values())


def test_workers_that_ask_together_do_not_all_run_the_same(
    filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked after so many trials."""
    after = (65, 97, 121, 137, 145)
    told = [of_one_configuration(filled, trials) for trials in after]
    monkeypatch.setattr(TrialHistory, "running", ())
    blind = [of_one_configuration(filled, trials) for trials in after]
    assert max(told) < max(blind)
    assert sum(told) < 0.75 * sum(blind)


def test_a_part_of_the_runs_looks_for_another_studys_level(
    filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level below the default's MQL: what forecasts better is run, though it be slower."""
    runs, default = past(filled), place_of(SPACE, DEFAULT)
    known = Known(past=runs, fit=runs, default=default)
    fitted = Fits().of(runs, default)
    believed = Believed.of(runs, [], default, fitted, MARGIN)

    def mean_mql(share: float) -> float:
        """Expected of what is chosen, over the default's."""
        monkeypatch.setattr(next_run, "FOR_ANOTHERS", share)
        decides = NextRun(SPACE, margin=MARGIN)
        level = believed.of_default - 0.01  # which nothing that ran reaches surely
        places = [
            decides.place(known, np.random.default_rng(seed), level=level) for seed in range(12)
        ]
        new = np.array(places)
        return float((believed.mql.of(np.arange(0), new).mean - believed.of_default).mean())

    monkeypatch.setattr(next_run, "LEAST_CHANCE", 0.0)
    assert mean_mql(1.0) < mean_mql(0.0) - 0.003
    for strange in (-math.inf, -700.0, 710.0, math.inf):  # a shared database may hold any number
        monkeypatch.setattr(next_run, "FOR_ANOTHERS", 1.0)
        decides = NextRun(SPACE, margin=MARGIN)
        assert len(decides.place(known, np.random.default_rng(1), level=strange)) > 0


def test_a_level_that_nothing_promises_is_given_up_for_its_own(
    filled: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_run, "FOR_ANOTHERS", 1.0)
    runs = past(filled)
    known = Known(past=runs, fit=runs, default=place_of(SPACE, DEFAULT))
    decides, best = NextRun(SPACE, margin=MARGIN), math.log(min(run.mql for run in runs))
    decides.place(known, np.random.default_rng(1), level=best)
    assert decides.for_anothers is True
    given_up = decides.place(known, np.random.default_rng(1), level=best - 0.1)
    assert decides.for_anothers is False
    again = np.random.default_rng(1)
    again.random()  # whose turn it is
    assert decides.place(known, again) == given_up
    assert decides.for_anothers is None


def test_what_was_cut_off_gives_no_level_up(filled: Study) -> None:
    runs, default = past(filled), place_of(SPACE, DEFAULT)
    fitted, level = Fits().of(runs, default), math.log(min(run.mql for run in runs)) - 0.1

    def given_up(converged: int, *, more: bool = True) -> bool:
        """Where all but the first so many were cut off."""
        cut = [replace(run, mql=2 * run.mql, converged=False) for run in runs[converged:] if more]
        known = Known(past=[*runs[:converged], *cut], fit=runs, default=default)
        return next_run.is_hopeless(known, fitted, level)

    assert not given_up(12), "of these some are the default"
    assert given_up(30)
    assert given_up(30, more=False)


def test_what_is_expected_beyond_a_limit_is_not_run_again() -> None:
    slowest = 0.5 * (true_seconds(DEFAULT) + 10 * math.exp(-1.3))

    def limits(values: tuple[float, float], _recorded: Any) -> dict[str, float]:
        return {"max_time": slowest / values[0] - 1.0}  # turned around: the fast ones break it

    def again(violations: Violations | None) -> list[float]:
        """Seconds of what a search ran a third time, as parts of the limit."""
        study = searched(70, violations=violations, seed=4)
        counts = Counter(configuration(params) for params in asked(study))
        return [
            true_seconds(params) / slowest
            for params in asked(study)[30:]
            if counts[configuration(params)] > 2 and params != DEFAULT
        ]

    limited, free = again(limits), again(None)
    assert len(limited) >= 3
    assert len(free) > 6
    assert np.mean(np.array(limited) > 0.9) > 0.85
    assert np.mean(np.array(free) > 0.9) < 0.05


def test_towards_the_end_of_its_budget_it_tries_nothing_new(filled: Study) -> None:
    for budget, new in ((400, True), (44, False)):
        study = optuna.create_study(
            directions=["minimize", "minimize"], sampler=sampler(budget=budget)
        )
        study.add_trials(filled.trials[:40])
        there = {configuration(params) for params in asked(study)}
        found = {configuration(SPACE.true(study.ask(SPACE.stored()).params)) for _ in range(4)}
        assert bool(found - there) == new


def test_what_cost_workers_their_lives_is_not_run_again(filled: Study) -> None:
    counts = Counter(configuration(params) for params in asked(filled))
    often = [here for here, _ in counts.most_common(6)]
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    study.add_trials(filled.trials)
    barred = [p for p in asked(filled) if configuration(p) in often and p != DEFAULT]
    for params in barred:
        study.add_trial(
            create_trial(
                state=TrialState.FAIL,
                params=SPACE.held(params),
                distributions=SPACE.stored(),
                user_attrs={"set_aside": True},
            )
        )
    for _ in range(6):
        trial = study.ask(SPACE.stored())
        assert SPACE.true(trial.params) not in barred
        study.tell(trial, measured(trial.params, trial.number))


def test_failed_trials_count_as_the_worst_run(filled: Study) -> None:
    study = begun(12)
    params = SPACE.at([0.9] * 5)
    study.add_trial(
        create_trial(
            state=TrialState.FAIL,
            params=SPACE.held(params),
            distributions=SPACE.stored(),
            user_attrs={"stopped_by": "diverged", "epochs": 2},
        )
    )
    *others, failed = past(study)
    assert failed.seconds == max(run.seconds for run in others)
    assert failed.mql == max(run.mql for run in others)
    assert not failed.converged
    assert failed.epochs is None


def test_a_space_that_holds_nothing_new_is_searched_all_the_same() -> None:
    small = of_single_values(SPACE, "hidden_size", "batch_size")
    default = small.at([0.5] * 5)
    study = optuna.create_study(
        directions=["minimize", "minimize"],
        sampler=EncodedSampler(small, "kg", seed=1, default=default),
    )
    study.enqueue_trial(small.held(default))
    for _ in range(30):
        trial = study.ask(small.stored())
        assert small.contains(small.true(trial.params)) == []
        time_, mql = np.random.default_rng(trial.number).standard_normal(2)
        study.tell(trial, (64 / trial.params["batch_size"] * math.exp(0.1 * time_), 1 + 0.01 * mql))
    counts = Counter(configuration(params) for params in asked(study))
    assert max(counts.values()) > 2


def test_auto_has_a_name_of_its_own() -> None:
    assert method_of("auto") is method_of(AUTO)
    assert AUTO == "kg"


def test_a_suggestion_takes_little_time_after_many_runs() -> None:
    study = begun(300)
    for params in asked(study)[:20]:
        study.add_trial(
            create_trial(
                params=SPACE.held(params),
                distributions=SPACE.stored(),
                values=measured(params, 999),
            )
        )
    study.ask(SPACE.stored())
    began = time.process_time()
    for _ in range(4):
        study.ask(SPACE.stored())
    assert (time.process_time() - began) / 4 < 0.5
