"""A finished study of plain Optuna, confirmed: nothing is written there."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from benchmarks.own_search.confirmed_examples import EXAMPLES, dump
from tests.support.databases import SQLITE_ALONE
from tests.support.forked_cli import run_here
from tests.support.killed_calls import ended_by
from tuner.errors import TunerError, UsageError
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.worker.functions import confirm
from tuner.worker.functions.calls import source_of
from tuner.worker.functions.confirm import DETERMINISTIC, Margin, Verdict
from tuner.worker.functions.foreign import ForeignStudy, read_foreign
from tuner.worker.functions.study import create_study

pytestmark = pytest.mark.slow

WORDS = 25
SLOW = """
import random, time


def objective(trial):
    kind = trial.suggest_categorical("kind", ["a", "b"])
    width = trial.suggest_int("width", 1, 64, log=True)
    rate = trial.suggest_float("rate", 0, 1) if kind == "a" else 0.5
    time.sleep(width * 1e-4)
    return 1 + (rate - 0.5) ** 2 + 0.05 / width + random.gauss(0, 0.004)
"""
"""The default has the value 1.0008 and sleeps 6.4 ms; a width of 10 has 1.005 and sleeps 1 ms."""


def objective(trial: optuna.Trial) -> float:
    names: dict[str, Any] = {}
    exec(SLOW, names)
    return float(names["objective"](trial))


@functools.cache
def search(trials: int) -> list[optuna.trial.FrozenTrial]:
    """Its trials, which take no database."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1))
    study.enqueue_trial({"kind": "a", "width": 64, "rate": 0.5})
    random.seed(1)
    study.optimize(objective, n_trials=trials)
    return study.trials


def searched(storage: Any, trials: int = 60) -> None:
    optuna.create_study(study_name="theirs", storage=storage).add_trials(search(trials))


@pytest.fixture
def ours(tmp_path: Path) -> Any:
    opened = open_database(parse_url(f"sqlite:///{tmp_path}/ours.db"))
    yield opened
    opened.close()


def confirmed(database: Database, study: ForeignStudy, function: Any, **more: Any) -> Verdict:
    verdict = confirm.confirmed(database, study, source_of(function), **more)
    for sentence in verdict.answer:
        assert len(sentence.split()) <= WORDS, sentence
    return verdict


def test_what_saves_time_is_found_and_nothing_is_written_there(
    database_url: str, ours: Database, tmp_path: Path
) -> None:
    searched(parse_url(database_url).full())
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    before = dump(database_url)
    study = read_foreign(database_url, None)
    verdict = confirmed(ours, study, f"{file}:objective")
    assert dump(database_url) == before
    assert verdict.plan.configurations[0].trial == 0, "the first that was enqueued"
    assert verdict.faster is not None
    assert verdict.answer[0].startswith("Take trial ")
    params = verdict.plan.configurations[verdict.faster].params
    truly = 1 + (params.get("rate", 0.5) - 0.5) ** 2 + 0.05 / params["width"]
    assert truly <= 1.01 * (1 + 0.05 / 64)
    assert params["width"] < 50, "it sleeps less"
    assert any("the rest was luck" in each for each in verdict.answer)
    runs = sum(each.runs for each in verdict.ran)
    again = confirmed(ours, study, f"{file}:objective")
    assert (again.answer, sum(each.runs for each in again.ran)) == (verdict.answer, runs)


def test_a_default_that_was_never_tried_runs_on_seeds_of_its_own_first(
    ours: Database, tmp_path: Path
) -> None:
    searched(f"sqlite:///{tmp_path}/theirs.db")
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    study = read_foreign(str(tmp_path / "theirs.db"), "theirs")
    default = {"kind": "b", "width": 63}
    verdict = confirmed(ours, study, f"{file}:objective", default=default, seeds=10, workers=2)
    assert verdict.plan.configurations[0].trial is None
    assert verdict.ran[0].runs == 10, "what it was chosen by is not among them"
    assert len(verdict.plan.configurations) > 1


@pytest.mark.parametrize("kind", ["deterministic", "seeds_itself"])
def test_without_noise_nothing_is_confirmed(kind: str, ours: Database, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/theirs.db"
    study = optuna.create_study(study_name="theirs", storage=place)
    study.optimize(lambda trial: trial.suggest_float("x", -5, 5) ** 2 + 1, n_trials=15)
    verdict = confirmed(ours, read_foreign(place, None), f"{EXAMPLES / kind}.py:objective")
    assert verdict.answer == (f"Nothing is confirmed: {DETERMINISTIC}.",)
    assert verdict.confirmed is None


def test_a_maximised_study_of_a_journal_asks_for_a_margin_of_its_own(
    ours: Database, tmp_path: Path
) -> None:
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(tmp_path / "log")))
    study = optuna.create_study(study_name="theirs", storage=storage, direction="maximize")
    study.optimize(lambda t: t.suggest_float("x", 0, 1) + random.gauss(0, 0.01), n_trials=30)
    foreign = read_foreign(str(tmp_path / "log"), None)
    with pytest.raises(UsageError, match=r"in their own units, such as --margin 0\.002"):
        Margin.of("1%", foreign)

    def function(trial: optuna.Trial) -> float:
        import random

        return trial.suggest_float("x", 0, 1) + random.gauss(0, 0.01)

    low = max(foreign.trials, key=foreign.low_value).trial
    verdict = confirmed(ours, foreign, function, margin="0.02", against=low, seeds=10)
    assert verdict.better
    assert verdict.best.params["x"] > 0.9


def test_a_table_with_two_columns_of_figures_is_a_study(ours: Database, tmp_path: Path) -> None:
    lines = ["depth,kind,rate,value,seconds"]
    for n in range(40):
        rate = "" if n % 2 else f"{10 ** -(1 + n / 20)}"
        lines.append(f"{1 + n % 7},{'ab'[n % 2]},{rate},{1 + n / 100},{2 + n}")
    file = tmp_path / "sweep.csv"
    file.write_text("\n".join(lines))
    study = read_foreign(str(file), None)
    assert study.name == "sweep"
    assert study.trials[1].params == {"depth": 2, "kind": "b"}

    def train(params: dict[str, Any], *, seed: int) -> float:
        return 1.0 + int(params["depth"]) / 100 + seed % 1000 / 1e6

    verdict = confirmed(ours, study, train, against=30, seeds=10)
    assert verdict.best.params["depth"] == 1
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UsageError, match="one called 'value'"):
        read_foreign(str(tmp_path / "bad.csv"), None)


def test_two_objectives_keep_the_first_and_save_of_the_second(
    ours: Database, tmp_path: Path
) -> None:
    place = f"sqlite:///{tmp_path}/theirs.db"
    sampler = optuna.samplers.RandomSampler(seed=3)
    study = optuna.create_study(
        study_name="theirs", storage=place, directions=["minimize", "maximize"], sampler=sampler
    )
    study.enqueue_trial({"x": 0.5})

    def function(trial: optuna.Trial) -> tuple[float, float]:
        import random

        x = trial.suggest_float("x", 0, 1)
        return 1 + 0.1 * (x - 0.5) ** 4 + random.gauss(0, 0.002), x - 0.6 + random.gauss(0, 0.01)

    study.optimize(function, n_trials=40)
    verdict = confirmed(ours, read_foreign(place, None), function, seeds=20)
    assert verdict.faster is not None
    assert verdict.best.params["x"] > 0.6
    assert "second value" in verdict.answer[0]


def test_a_script_without_a_main_guard_searches_no_more(tmp_path: Path, ours: Database) -> None:
    place = f"sqlite:///{tmp_path}/theirs.db"
    searched(place, 20)
    file = tmp_path / "script.py"
    file.write_text(
        SLOW
        + f"""
import optuna

study = optuna.load_study(study_name="theirs", storage={place!r})
study.optimize(objective, n_trials=1000)
"""
    )
    confirmed(ours, read_foreign(place, None), f"{file}:objective", seeds=5)
    assert len(read_foreign(place, None).trials) == 20


FAILING = {
    "return trial.suggest_float('rate', 0, 1) + trial.suggest_int('width', 1, 7)": "out of",
    "return trial.suggest_float('other', 0, 1)": "'other' is not found",
    "raise OSError('no such data')": "OSError: no such data",
    "return 'much'": "could not convert",
    "return 1.0, 2.0": "expected a finite number",
}


def test_a_function_that_fails_at_once_is_told_at_once(tmp_path: Path, ours: Database) -> None:
    searched(f"sqlite:///{tmp_path}/theirs.db", 1)
    study = read_foreign(f"sqlite:///{tmp_path}/theirs.db", None)
    file = tmp_path / "bad.py"
    for body, why in FAILING.items():
        file.write_text(f"def objective(trial):\n    {body}\n")
        with pytest.raises(TunerError, match=why):
            confirmed(ours, study, f"{file}:objective", seeds=5)


@SQLITE_ALONE
def test_what_is_killed_goes_on_and_leaves_no_process(database_url: str, tmp_path: Path) -> None:
    searched(f"sqlite:///{tmp_path}/theirs.db")
    file = tmp_path / "slow.py"
    file.write_text(SLOW.replace("time.sleep(width * 1e-4)", "time.sleep(0.04)"))
    words = ["confirm", str(tmp_path / "theirs.db"), "--objective", f"{file}:objective"]
    words += ["--seeds", "12", "--workers", "2"]
    environment = os.environ | {"TUNER_STORAGE": database_url}
    command = [sys.executable, "-m", "tuner", *words]
    assert ended_by(signal.SIGKILL, command, 2, environment) == -signal.SIGKILL
    assert ended_by(signal.SIGINT, command, 2, environment) == 130
    done = run_here(*words, folder=tmp_path, environment={"TUNER_STORAGE": database_url})
    database = open_database(parse_url(database_url))
    study = read_foreign(str(tmp_path / "theirs.db"), None)
    verdict = confirmed(database, study, f"{file}:objective", seeds=12)
    assert done.out.splitlines()[: len(verdict.answer)] == list(verdict.answer)
    assert [each.runs for each in verdict.ran] == [12] * len(verdict.ran)
    database.close()


def test_status_lists_studies_of_others_as_what_they_are(database_url: str, tmp_path: Path) -> None:
    url = parse_url(database_url).full()
    searched(url, 2)
    environment = {"TUNER_STORAGE": url}
    before = dump(database_url)
    done = run_here("status", folder=tmp_path, environment=environment)
    assert dump(database_url) == before
    first, last = done.out.splitlines()
    assert first == "theirs: of another program, 2 of 2 complete"
    assert last.startswith("to confirm one: tuner confirm ")
    with create_study("mine", storage=url) as study:
        study.ask()
    done = run_here("status", "--json", folder=tmp_path, environment=environment)
    others = done.json()["others"]
    assert others[1] == {
        "number": 2,
        "name": "mine",
        "kind": "a search over a function",
        "trials": 1,
        "complete": 0,
    }


def test_nothing_is_made_beside_a_database_that_keeps_a_log(tmp_path: Path) -> None:
    file = tmp_path / "theirs.db"
    searched(f"sqlite:///{file}", 2)
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    assert len(read_foreign(str(file), None).trials) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["theirs.db"]
    with contextlib.closing(sqlite3.connect(file)) as writer:  # its log is read, too
        writer.execute("DELETE FROM trial_values WHERE trial_id = 1")
        writer.commit()
        assert len(read_foreign(str(file), None).trials) == 1
