"""A search over a function: each trial has one result, whatever dies, and any loop can ask and
tell."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

import tuner
from tests.support.databases import SQLITE_ALONE
from tests.support.killed_calls import ended_by
from tuner.errors import TunerError, UsageError
from tuner.storage.url import parse_url
from tuner.worker.functions.study import FunctionStudy, create_study, optimize

pytestmark = pytest.mark.slow

SPACE = {"x": FloatDistribution(0, 1)}


def noisy(trial: optuna.Trial) -> float:
    kind = trial.suggest_categorical("kind", ["a", "b"])
    rate = trial.suggest_float("rate", 1e-4, 1, log=True) if kind == "a" else 0.1
    trial.set_user_attr("seed seen", tuner.current_seed())
    return 1 + 0.1 * abs(math.log10(rate) + 1) + random.gauss(0, 0.01)


def test_a_function_is_searched_and_its_best_confirmed(database_url: str) -> None:
    url = parse_url(database_url).full()
    with pytest.raises(UsageError, match="is the seed of the trial at work"):
        tuner.current_seed()
    common: dict[str, Any] = {"storage": url, "study_name": "mine", "sampler": "random"}
    first = optimize(noisy, n_trials=10, default={"kind": "a", "rate": 1e-3}, **common)
    first.study.close()
    result = optimize(noisy, n_trials=30, n_jobs=3, confirm_seeds=10, **common)
    trials = result.study.optuna.get_trials()
    assert [each.number for each in trials] == list(range(30))
    assert {each.state for each in trials} == {TrialState.COMPLETE}
    assert trials[0].params == {"kind": "a", "rate": 1e-3}
    assert all(each.user_attrs["seed seen"] == each.user_attrs["seed"] for each in trials)
    assert all(each.values[1] == each.user_attrs["wall_clock_s"] for each in trials)
    assert trials[0].user_attrs["clock"] == "function"
    assert "Nothing is confirmed yet" in result.answer[1]
    verdict = result.confirm(workers=2)
    assert verdict.better
    assert result.best.trial == verdict.plan.configurations[verdict.plan.best].trial
    assert result.answer[0].startswith("Take trial ")
    with pytest.raises(UsageError, match="with another directions"):
        create_study("mine", storage=url, directions=["maximize"])
    result.study.close()


def test_each_end_has_its_state_and_its_reason(tmp_path: Path) -> None:
    def ends(trial: optuna.Trial) -> float:
        trial.suggest_float("x", 0, 1)
        match trial.number:
            case 1:
                raise optuna.TrialPruned("enough")
            case 2:
                raise OSError("no such data")
            case 3:
                return math.nan
            case 4:
                os.kill(os.getpid(), signal.SIGSEGV)
            case 5:
                raise SystemExit(3)
        return -math.inf if trial.number == 6 else 1.0

    result = optimize(ends, n_trials=8, storage=f"sqlite:///{tmp_path}/ours.db")
    trials = result.study.optuna.get_trials()
    said = [each.user_attrs.get("failure") for each in trials]
    assert [each.state.name for each in trials] == (
        ["COMPLETE", "PRUNED", "FAIL", "FAIL", "FAIL", "FAIL", "FAIL", "COMPLETE"]
    )
    assert said[1] == "enough"
    assert "OSError: no such data" in str(said[2])
    assert "returned nan; expected a finite number" in str(said[3])
    assert "was ended by SIGSEGV" in str(said[4])
    assert "SystemExit: 3" in str(said[5])
    result.study.close()


def test_a_first_call_that_fails_raises_and_takes_no_trial(tmp_path: Path) -> None:
    def wrong(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0, 1) + undefined  # type: ignore[name-defined,no-any-return]  # noqa: F821

    url = f"sqlite:///{tmp_path}/ours.db"
    with pytest.raises(TunerError, match=r"first call: .*NameError: name 'undefined'"):
        optimize(wrong, n_trials=5, storage=url, study_name="mine")
    study = create_study("mine", storage=url)
    assert [each.state for each in study.optuna.get_trials()] == [TrialState.WAITING]
    with pytest.raises(UsageError, match="say n_trials or timeout"):
        optimize(wrong, storage=url)
    for sampler, why in (("tpee", "did you mean 'tpe'"), ("os:getcwd", "cannot be made")):
        with pytest.raises(UsageError, match=why):
            create_study("other", storage=url, sampler=sampler)
    study.close()


def test_parameters_and_a_seed_in_place_of_a_trial(tmp_path: Path) -> None:
    def train(params: dict[str, Any], *, seed: int, report: Any) -> tuple[float, float]:
        report(params["x"], 0)
        return params["x"], float(seed)

    url = f"sqlite:///{tmp_path}/ours.db"
    for directions, seconds in ((["maximize"], "returned"), (["maximize", "minimize"], "measured")):
        result = optimize(
            train,
            SPACE,
            n_trials=4,
            storage=url,
            directions=directions,
            seconds=seconds,
            sampler="optuna.samplers:RandomSampler",
        )
        for each in result.study.optuna.get_trials():
            assert each.values == [each.params["x"], each.user_attrs["seed"]]
        result.study.close()


def test_a_function_that_has_changed_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def searches(factor: int) -> Any:
        return lambda trial: factor * trial.suggest_float("x", 0, 1)

    common: dict[str, Any] = {"storage": f"sqlite:///{tmp_path}/ours.db", "study_name": "mine"}
    said = []
    for factor, trials in ((1, 2), (2, 3), (2, 4)):
        caplog.clear()
        optimize(searches(factor), n_trials=trials, **common).study.close()
        said.append(caplog.messages)
    told = "the function has changed; earlier trials stay"
    assert said == [[], [told], []]


def test_a_trial_that_is_dominated_at_best_is_pruned(tmp_path: Path) -> None:
    def curve(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        for step in range(8):
            trial.report(x + 1 / (step + 1), step)
            time.sleep(0.001 if trial.number < 30 else 0.02)  # those dominate these
            if trial.should_prune():
                raise optuna.TrialPruned
        return x + 1 / 8

    default = {"x": 0.01}
    url = f"sqlite:///{tmp_path}/ours.db"
    result = optimize(curve, n_trials=40, storage=url, default=default, sampler="random")
    trials = result.study.optuna.get_trials()
    assert all(each.state == TrialState.COMPLETE for each in trials[:30]), "too few to go by"
    pruned = [each.params["x"] for each in trials if each.state == TrialState.PRUNED]
    assert pruned
    assert min(pruned) > 0.01
    result.study.close()


ASKS = """
import sys, time
from tuner import create_study
from optuna.distributions import FloatDistribution

study = create_study("mine", {"x": FloatDistribution(0, 1)}, storage=sys.argv[1])
asked = study.ask()
print(asked.number, asked.seed, asked.params["x"], flush=True)
time.sleep(60)
"""


def asked_of(url: str) -> FunctionStudy:
    return create_study("mine", SPACE, storage=url)


def test_what_is_asked_for_and_lost_comes_back_as_it_was(database_url: str) -> None:
    url = parse_url(database_url).full()
    with subprocess.Popen(
        [sys.executable, "-c", ASKS, url], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        number, seed, x = process.stdout.readline().split()
        with asked_of(url) as study:
            other = study.ask()
            assert other.number == int(number) + 1
            assert study.tell(other, 0.5, seconds=2.0)
        process.kill()
    with asked_of(url) as study:
        again = study.ask()
        assert (again.number, again.seed, again.params["x"]) == (int(number), int(seed), float(x))
        assert study.tell(again, None, why="it was too cold")
        left = study.ask()
    with asked_of(url) as study:
        assert study.ask().number == left.number, "it was given back"
        values = [each.values for each in study.optuna.get_trials()]
        assert values[1] == [0.5, 2.0]
        assert values[0] is None


SCRIPT = """
import random, subprocess, sys, time
import tuner


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    subprocess.run(["sleep", "0.05"])
    return x + random.random()


result = tuner.optimize(
    objective, n_trials=30, n_jobs=2, storage=sys.argv[1], study_name="mine"
)
print("trials", len(result.study.optuna.get_trials()))
"""
"""Without a main guard; what it starts itself has to end, too."""


@SQLITE_ALONE
def test_a_killed_script_loses_nothing_and_leaves_no_process(
    database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    words = [sys.executable, str(file), database_url]
    before = 0
    for kind in (signal.SIGKILL, signal.SIGINT):
        assert ended_by(kind, words, 5) == -kind
        with create_study("mine", storage=database_url) as study:
            done = study.ledger.counts().finished
        assert done >= before
        before = done
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stdout == "trials 30\n"
    with create_study("mine", storage=database_url) as study:
        assert all(each.state == TrialState.COMPLETE for each in study.optuna.get_trials())
