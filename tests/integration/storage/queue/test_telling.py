"""Optuna is told every result once, whoever dies between writing it and telling."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import OperationalError

from tests.support.claims import RESULT, start, trial_states
from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import theirs
from tests.support.small_study import definition
from tuner.storage import schema
from tuner.storage.database import open_database
from tuner.storage.records import Claim
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study

pytestmark = pytest.mark.usefixtures("at_first_sight")


def record_without_telling(study: OpenStudy, claim: Claim) -> None:
    """What is left of a worker that died between writing its result and telling Optuna."""
    assert study.ledger._update_running(claim, state="finished", result=RESULT.to_json())


def settle(url: str, name: str) -> str:
    database = open_database(parse_url(url), create=False)
    open_study(database, name).ledger.settle()
    database.close()
    return ""


def test_settlers_at_once_tell_each_result_once(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "small", definition(), trials=10)
    for _ in range(4):
        record_without_telling(study, start(study)[0])
    assert at_once(settle, database_url, "small", processes=4) == [""] * 4
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
        connection.execute(update(schema.work).values(told=False))
    study.ledger.settle()  # the crash came after the state: the result stands
    assert trial_states(study) == ["COMPLETE"]


def test_ours_takes_the_place_of_what_another_program_told_and_says_its_constraints(
    study: OpenStudy,
) -> None:
    claim, trial = start(study)
    theirs(study).tell(trial.number, [0.0, 9.0])
    study.ledger.give_back(claim)
    (waiting,) = theirs(study).get_trials(deepcopy=False)
    assert (waiting.state.name, waiting.values) == ("WAITING", None)
    claim, _ = start(study)
    theirs(study).tell(trial.number, [0.0, 9.0])
    with study.database.engine.begin() as connection:
        connection.execute(text("UPDATE trials SET datetime_complete = NULL"))
    assert study.ledger.finish(claim, replace(RESULT, constraints={"time": -1.0}))
    (told,) = theirs(study).trials
    assert told.values == [1.5, 0.25]
    assert told.datetime_complete is not None
    assert -1.0 in told.system_attrs.values()


def test_a_result_that_somebody_is_telling_keeps_nobody_waiting(study: OpenStudy) -> None:
    """After an outage hundreds of workers tell at once: each its own, without waiting."""
    if study.database.address.is_sqlite:
        pytest.skip("there one transaction writes at a time")
    first, second, third = (start(study, worker)[0] for worker in ("ann", "bob", "cid"))
    for claim in (first, second):
        record_without_telling(study, claim)
    row = select(schema.work).where(schema.work.c.work_id == first.work_id)
    with study.database.engine.begin() as telling:
        telling.execute(row.with_for_update())
        assert study.ledger.finish(third, RESULT)
        assert trial_states(study) == ["RUNNING", "RUNNING", "COMPLETE"], "its own alone"
        study.ledger.settle()
        assert trial_states(study) == ["RUNNING", "COMPLETE", "COMPLETE"]
    study.ledger.settle()
    assert trial_states(study) == ["COMPLETE"] * 3


def test_a_result_waits_for_no_row_of_optunas(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is recorded where that cannot be written, and told by whoever comes next."""
    claim, _ = start(study)
    held = OperationalError("UPDATE trials", {}, Exception("lock timeout"))
    with monkeypatch.context() as patch:
        patch.setattr("tuner.storage.optuna.private.tell", Mock(side_effect=held))
        assert study.ledger.finish(claim, RESULT)
    assert study.ledger.counts().finished == 1
    assert trial_states(study) == ["RUNNING"]
    study.ledger.settle()
    assert trial_states(study) == ["COMPLETE"]


@SQLITE_ALONE
def test_a_state_that_another_program_made_up_costs_no_result(study: OpenStudy) -> None:
    """Elsewhere a state is one of an enumeration."""
    claim, _ = start(study)
    with study.database.engine.begin() as connection:
        connection.execute(text("PRAGMA ignore_check_constraints = 1"))
        connection.execute(text("UPDATE trials SET state = 'BROKEN'"))
    assert study.ledger.finish(claim, RESULT)
    assert trial_states(study) == ["COMPLETE"]
