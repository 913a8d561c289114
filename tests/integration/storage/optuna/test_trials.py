"""Trials read in plain SQL are those that Optuna reads through its mapper."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState, create_trial
from sqlalchemy import text

from tests.support.postgres_cluster import Cluster
from tests.support.present import present
from tests.support.small_study import definition
from tuner.storage.database import open_database
from tuner.storage.sqlite import SQLITE_TIMEOUT_S
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume


def fill(study: OpenStudy) -> None:
    """Trials in every state, with everything that a trial can have."""
    space = study.definition.space.stored()
    optuna = study.optuna
    optuna.tell(optuna.ask(space), (1.5, float("inf")))
    trial = optuna.ask(space)
    trial.set_user_attr("note", {"a": [1, None, "ä"]})
    study.database.optuna.set_trial_intermediate_value(trial._trial_id, 3, 0.5)
    study.database.optuna.set_trial_intermediate_value(trial._trial_id, 4, float("nan"))
    optuna.tell(trial, state=TrialState.PRUNED)
    optuna.tell(optuna.ask(space), state=TrialState.FAIL)
    optuna.enqueue_trial({"dropout": 0.25}, user_attrs={"by": "hand"})
    optuna.ask(space)
    optuna.enqueue_trial({"dropout": 0.125})
    optuna.add_trial(create_trial(values=[2.0, 0.5], system_attrs={"NSGA:generation": 2}))


QUERIES: list[tuple[tuple[TrialState, ...] | None, set[int], int]] = [
    (None, set(), -1),
    ((TrialState.COMPLETE, TrialState.WAITING), set(), -1),
    (None, {2, 5, 99}, 3),
    (None, set(), 3),
    ((TrialState.RUNNING,), {1, 2, 4}, 6),
    (None, set(), 10_000),
]
"""States, trials to include, and the number beyond which all are wanted (-1: all)."""


def test_the_same_trials_as_optuna_reads(study: OpenStudy) -> None:
    fill(study)
    ours = study.database.optuna
    for states, included, beyond in QUERIES:
        theirs = RDBStorage._get_trials(ours, study.study_id, states, included, beyond)
        found = ours._get_trials(study.study_id, states, included, beyond)
        # As text: NaN is not equal to itself.
        assert [str(vars(trial)) for trial in found] == [str(vars(trial)) for trial in theirs]
        assert [list(trial.params) for trial in found] == [list(trial.params) for trial in theirs]
    assert {trial.state for trial in ours._get_trials(study.study_id, *QUERIES[0])} == set(
        TrialState
    )


def test_a_study_that_is_not_there_is_told_apart_from_one_without_trials(study: OpenStudy) -> None:
    with pytest.raises(KeyError):
        study.database.optuna.get_all_trials(12345)


def test_a_failed_read_is_raised_as_optuna_raises_it(study: OpenStudy) -> None:
    with study.database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE trial_values RENAME TO gone"))
    with pytest.raises(StorageInternalError):
        study.database.optuna.get_all_trials(study.study_id)


def test_reading_sqlite_waits_for_no_writer(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    study = create_or_resume(database, "small", definition(), trials=3)
    holder = sqlite3.connect(tmp_path / "tuner.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    reader = threading.Thread(target=study.optuna.get_trials, daemon=True)
    reader.start()
    reader.join(SQLITE_TIMEOUT_S - 5)  # in which the writer's lock would be waited for
    assert not reader.is_alive()
    holder.rollback()
    holder.close()
    database.close()


def test_no_transaction_is_open_while_rows_are_parsed(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends the session of a client that leaves it waiting inside of one."""
    name = postgres.create_database()
    database = open_database(parse_url(postgres.url(name)))
    study = create_or_resume(database, "small", definition(), trials=3)
    fill(study)
    states = (
        "SELECT count(*) FILTER (WHERE state LIKE 'idle in transaction%'), count(*) "
        "FROM pg_stat_activity "
    )
    open_transactions = []
    with postgres.connect(name) as observer:

        def parse(text: str) -> object:
            found = observer.execute(
                states + "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            open_transactions.append(present(found.fetchone()))
            return json.loads(text)

        monkeypatch.setattr("tuner.storage.optuna.trials.json", SimpleNamespace(loads=parse))
        study.database.optuna.get_all_trials(study.study_id)
    assert len(open_transactions) > 3
    assert all(idle == 0 and sessions > 0 for idle, sessions in open_transactions)
    database.close()
    postgres.empty_database(name)
