"""Optuna is told every result once, whoever dies between writing it and telling."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from tests.support.claims import RESULT, start, trial_states
from tests.support.concurrency import at_once
from tests.support.small_study import definition
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import Claim
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study

pytestmark = pytest.mark.usefixtures("at_first_sight")


def record_without_telling(study: OpenStudy, claim: Claim) -> None:
    """What is left of a worker that died between writing its result and telling Optuna."""
    assert study.ledger._update_running(claim, state="finished", result=RESULT.to_json())


def test_a_result_that_optuna_was_not_told_is_told_by_whoever_comes_next(study: OpenStudy) -> None:
    claim, _ = start(study)
    record_without_telling(study, claim)
    assert trial_states(study) == ["RUNNING"]
    assert study.ledger.counts().finished == 1
    study.ledger.reap()
    assert trial_states(study) == ["COMPLETE"]
    assert study.optuna.trials[0].values == [1.5, 0.25]
    assert study.optuna.trials[0].user_attrs["epochs"] == 7


def settle(url: str, name: str) -> str:
    database = open_database(parse_url(url), create=False)
    open_study(database, name).ledger.settle()
    database.close()
    return ""


def test_eight_settlers_at_once_tell_each_result_once(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "small", definition(), trials=10)
    for _ in range(4):
        record_without_telling(study, start(study)[0])
    assert at_once(settle, database_url, "small") == [""] * 8
    assert trial_states(study) == ["COMPLETE"] * 4
    for trial in study.optuna.trials:
        assert trial.values == [1.5, 0.25]
        assert trial.user_attrs["test_mql/a b"] == 1e-7
    ended = [trial.datetime_complete for trial in study.optuna.trials]
    study.ledger.settle()
    assert [trial.datetime_complete for trial in study.optuna.trials] == ended
    database.close()


def test_a_crash_in_the_middle_of_telling_is_finished(study: OpenStudy) -> None:
    """Attributes are written first, the state after: between the two there are attributes of an
    unfinished trial."""
    claim, trial = start(study)
    study.database.optuna.set_trial_user_attr(trial._trial_id, "epochs", -1)
    record_without_telling(study, claim)
    study.ledger.settle()
    assert study.optuna.trials[0].user_attrs["epochs"] == 7
    with study.database.engine.begin() as connection:
        connection.execute(update(schema.claims).values(told=False))
    study.ledger.settle()  # the crash came after the state: the result stands
    assert trial_states(study) == ["COMPLETE"]


def test_a_database_without_studies_settles_nothing(database: Database) -> None:
    Ledger(database, study_id=1).settle()


def test_a_result_that_somebody_is_telling_keeps_nobody_waiting(study: OpenStudy) -> None:
    """After an outage hundreds of workers tell at once: each its own, without waiting."""
    if study.database.address.is_sqlite:
        pytest.skip("there one transaction writes at a time")
    first, second, third = (start(study, worker)[0] for worker in ("ann", "bob", "cid"))
    for claim in (first, second):
        record_without_telling(study, claim)
    row = select(schema.claims).where(schema.claims.c.claim_id == first.claim_id)
    with study.database.engine.begin() as telling:
        telling.execute(row.with_for_update())
        assert study.ledger.finish(third, RESULT)
        assert trial_states(study) == ["RUNNING", "RUNNING", "COMPLETE"], "its own alone"
        study.ledger.settle()
        assert trial_states(study) == ["RUNNING", "COMPLETE", "COMPLETE"]
    study.ledger.settle()
    assert trial_states(study) == ["COMPLETE"] * 3
