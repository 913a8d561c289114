"""Leases on trials: on the database's clock, watched before they are taken back, and each taken
back once."""

from __future__ import annotations

import time

import pytest
from optuna.trial import TrialState
from sqlalchemy import update

from tests.support.claims import RESULT, claim_states, expire, start, trial_states, while_locked
from tests.support.cli_processes import wait_for
from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.small_study import definition
from tests.support.stopped_clock import StoppedClock
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.database import open_database
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study

pytestmark = pytest.mark.usefixtures("at_first_sight")


def test_a_lease_that_runs_out_puts_the_trial_back_as_it_was(study: OpenStudy) -> None:
    """On the database's own clock."""
    ledger = Ledger(study.database, study.study_id)
    ledger.lease_s = 0.2
    start(study)
    assert study.ledger.reap() == 0  # the first lease is a long one
    _, trial = start(study, "bob", ledger)
    wait_for(lambda: study.ledger.reap() == 1, "the second lease's end")
    assert claim_states(study) == ["running", "lost"]
    assert trial_states(study) == ["RUNNING", "WAITING"]
    _, again = start(study, "cem")
    assert (again.number, again.params) == (trial.number, trial.params)


def test_a_lease_that_is_renewed_does_not_run_out(study: OpenStudy) -> None:
    claim, _ = start(study)
    for _ in range(3):
        expire(study, claim)
        assert study.ledger.renew(claim)
        assert study.ledger.reap() == 0
    assert trial_states(study) == ["RUNNING"]


def test_a_late_result_is_kept_for_the_record_and_never_counted(study: OpenStudy) -> None:
    claim, trial = start(study)
    expire(study, claim)
    assert study.ledger.reap() == 1
    assert not study.ledger.renew(claim)
    assert not study.ledger.finish(claim, RESULT)
    assert study.ledger.counts().finished == 0
    later, again = start(study, "bob")
    assert again.number == trial.number
    assert not study.ledger.finish(
        claim, TrialResult(TrialState.COMPLETE, (9.0, 9.0), Recorded())
    )  # the first word stands
    study.ledger.give_back(claim)  # by the one that lost it: nothing happens
    assert trial_states(study) == ["RUNNING"]
    counted = TrialResult(TrialState.COMPLETE, (2.0, 0.5), Recorded())
    assert study.ledger.finish(later, counted)
    assert not study.ledger.finish(claim, RESULT)
    assert study.optuna.trials[0].values == [2.0, 0.5]
    assert study.optuna.trials[0].user_attrs == {"default": True}
    assert study.ledger.counts().finished == 1
    lost, finished = study.ledger.attempts(trial.number)
    assert (lost.worker, lost.state, lost.late, lost.result) == ("ann", "lost", True, RESULT)
    assert (finished.worker, finished.state, finished.late, finished.result) == (
        "bob",
        "finished",
        False,
        counted,
    )
    assert lost.claimed_at <= finished.claimed_at


def test_leases_that_ran_out_while_the_server_was_down_are_not_taken_back_before_a_grace(
    study: OpenStudy,
) -> None:
    """Their workers live, and are about to renew them."""
    patient = Ledger(study.database, study.study_id)
    patient.restart_grace_s = 1e9
    before, _ = start(study)
    since, _ = start(study, "bob")
    with study.database.engine.begin() as connection:
        old = update(schema.work).where(schema.work.c.work_id == before.work_id)
        connection.execute(old.values(claimed_at=1.0, leased_until=61.0))
    expire(study, since)
    if study.database.address.is_sqlite:
        assert patient.reap() == 2  # no server that could have been down
        return
    assert patient.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    assert study.ledger.renew(before)
    expire(study, before)
    assert patient.reap(worker="ann") == 1  # known to be dead: nobody will renew


def watched(study: OpenStudy, monkeypatch: pytest.MonkeyPatch) -> tuple[StoppedClock, Ledger]:
    """A ledger that looks on for 30 s before it takes a lease back, and the clock by which it does:
    set its `now`."""
    clock = StoppedClock(100.0)
    monkeypatch.setattr("tuner.storage.queue.leased_queue.time", clock)
    ledger = Ledger(study.database, study.study_id)
    ledger.confirm_s = 30.0
    return clock, ledger


def test_leases_that_ran_out_all_at_once_can_be_renewed_before_they_are_taken_back(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network was away, or the machine asleep: whoever looks first must not take the others for
    dead."""
    clock, watching = watched(study, monkeypatch)
    living, dead = start(study)[0], start(study, "bob")[0]
    expire(study, living)
    expire(study, dead)
    assert watching.reap() == 0
    assert study.ledger.renew(living)
    clock.now += 20.0
    assert watching.reap() == 0
    clock.now += 10.0
    assert watching.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    expire(study, living)
    for _ in range(3):
        clock.now += 31.0  # who looks this rarely cannot know what happened in between
        assert watching.reap() == 0
    clock.now += 30.0
    assert watching.reap() == 1


def test_a_worker_with_another_clock_and_time_zone_takes_nobody_for_dead_but_the_dead(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour fast, and in another zone than the server's; SQLite has no clock but its host's."""
    dead, _ = start(study, "ann")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("PGTZ", "America/St_Johns")
    hour_fast = time.time() + 3600.0
    monkeypatch.setattr("time.time", lambda: hour_fast)
    time.tzset()
    try:
        far = open_database(study.database.address, create=False)
        abroad = open_study(far, study.name)
        living, _ = start(abroad, "bob")
        assert (study.ledger.reap(), abroad.ledger.reap()) == (0, 0)
        expire(study, dead)
        assert abroad.ledger.reap() == 1
        assert (abroad.ledger.renew(living), abroad.ledger.renew(dead)) == (True, False)
        far.close()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_database_whose_clock_was_set_back_does_not_keep_a_dead_workers_trial(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that lasts longer than any that is given now: the living renew theirs soon, the dead
    never."""
    clock, watching = watched(study, monkeypatch)
    living, dead = start(study)[0], start(study, "bob")[0]
    with study.database.engine.begin() as connection:
        connection.execute(
            update(schema.work).values(leased_until=schema.work.c.leased_until + 3600.0)
        )
    assert watching.reap() == 0
    assert study.ledger.renew(living)
    clock.now += 30.0
    assert watching.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    assert not study.ledger.renew(dead)


@SQLITE_ALONE
def test_a_claim_whose_worker_died_before_asking_does_not_leak(study: OpenStudy) -> None:
    study.ledger.set_budget(1)
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ledger.claim("bob") is None
    expire(study, claim)
    assert study.ledger.reap() == 1
    assert study.ask(claim) is None
    later, trial = start(study, "bob")
    assert (later.trial_id, trial.params) == (claim.trial_id, study.definition.defaults.as_dict())


@SQLITE_ALONE
def test_whose_lease_ran_out_is_said_and_where_that_process_is(
    study: OpenStudy, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be stopped, and keep its device from everybody."""
    study.roster.join("ann", host="gpu7", pid=123, device="NVIDIA H200 #0", device_uuid="GPU-1")
    for worker in ("ann", "bob"):
        expire(study, start(study, worker)[0])
    start(study, "cem")
    assert study.ledger.reap() == 2
    assert study.ledger.reap(worker="cem") == 1  # its launch knows, and says so itself
    first, second = [text for text in caplog.messages if "is taken back" in text]
    assert first.startswith(
        "trial 0 is taken back: ann let its lease run out; if its process still exists, "
    )
    assert first.endswith("kill -KILL 123 on gpu7 frees its device (NVIDIA H200 #0)")
    assert second == "trial 1 is taken back: bob let its lease run out"


def test_a_worker_known_to_be_dead_is_not_waited_for(study: OpenStudy) -> None:
    start(study, "ann")
    start(study, "bob")
    assert study.ledger.reap(worker="ann") == 1
    assert claim_states(study) == ["lost", "running"]
    assert trial_states(study) == ["WAITING", "RUNNING"]


def test_a_dead_workers_trial_is_taken_back_also_while_its_last_words_are_being_written(
    study: OpenStudy,
) -> None:
    """The server may learn later than its launch that it died. What is not taken back now waits for
    its lease's end."""
    start(study, "ann")
    last_words = update(schema.work).values(leased_until=1e12)
    assert while_locked(study.database, last_words, lambda: study.ledger.reap(worker="ann")) == 1
    assert claim_states(study) == ["lost"]


def reap(url: str, name: str) -> int:
    database = open_database(parse_url(url), create=False)
    taken = open_study(database, name).ledger.reap()
    database.close()
    return taken


def test_reapers_at_once_take_each_trial_back_once(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "small", definition(), trials=10)
    for _ in range(5):
        claim, _ = start(study)
        expire(study, claim)
    answers = at_once(reap, database_url, "small", processes=4)
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert sum(answers) == 5
    assert claim_states(study) == ["lost"] * 5
    assert trial_states(study) == ["WAITING"] * 5
    database.close()


@SQLITE_ALONE
def test_another_studys_claims_are_left_alone(study: OpenStudy) -> None:
    other = create_or_resume(study.database, "other", definition(), trials=1)
    claim, _ = start(other)
    expire(other, claim)
    start(study)
    assert study.ledger.reap() == 0
    assert study.ledger.reap(worker="bob") == 0
    assert trial_states(other) == ["RUNNING"]
    assert other.ledger.reap() == 1
