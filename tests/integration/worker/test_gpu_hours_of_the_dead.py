"""What a worker that was killed had of shared device hours: as much as it is known to have used,
and it keeps nobody else waiting."""

from __future__ import annotations

import json
import threading

import pytest
from sqlalchemy import update

from tests.support.claims import expire
from tests.support.device_hours import hours_of, plan_runs
from tests.support.in_process_worker import DEVICE, result_of
from tests.support.small_study import definition
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.study.open import OpenStudy, create_or_resume
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.process import StopFlag
from tuner.worker.verification_source import VerificationSource
from tuner.worker.work_source import GpuGrants, Granted

LIMIT_S = 1000.0


@pytest.fixture
def two(database: Database) -> list[OpenStudy]:
    """Two studies of three trials that share a limit."""
    studies = [create_or_resume(database, name, definition(), trials=3) for name in ("a", "b")]
    policy = SearchPolicy(sampler="random", prune=False, max_gpu_s=LIMIT_S, gpu_shared=("a", "b"))
    for each in studies:
        each.set_policy(policy)
    return studies


def works(studies: list[OpenStudy], **more: object) -> bool:
    """Whether a worker comes to its end in a few seconds."""
    stop = StopFlag()
    worker = Worker(studies, DEVICE, result_of, name="ben", stop=stop, **more)  # type: ignore[arg-type]
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(20.0)
    ended = not thread.is_alive()
    stop.set()
    thread.join()
    return ended


@pytest.mark.usefixtures("at_first_sight")
def test_a_grant_of_a_study_that_nobody_works_at_is_settled_by_others(
    two: list[OpenStudy],
) -> None:
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    assert hours_of(two).ask(claim.token, "ann") == LIMIT_S
    expire(two[0], claim)
    assert works([two[1]])
    assert two[1].ledger.counts().finished == 3
    assert hours_of(two).spent_s() < 20.0


@pytest.mark.usefixtures("at_first_sight")
def test_a_grant_of_a_trial_is_settled_by_who_verifies(two: list[OpenStudy]) -> None:
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    assert hours_of(two).ask(claim.token, "ann") == LIMIT_S
    expire(two[0], claim)
    plan_runs(two[0], 2)
    assert works(two, sources=(VerificationSource,))
    assert [each.state for each in verifications_of(two).runs()] == ["finished"] * 2


@pytest.mark.usefixtures("at_first_sight")
def test_a_grant_of_a_verification_run_is_settled_by_who_searches(two: list[OpenStudy]) -> None:
    plan_runs(two[0], 1)
    run = verifications_of(two).claim("ann")
    assert run is not None
    assert run.token is not None
    assert hours_of(two).ask(run.token, "ann") == LIMIT_S
    with two[0].database.engine.begin() as connection:
        connection.execute(update(schema.verifications).values(leased_until=database_now() - 1.0))
    assert works([two[1]])
    assert two[1].ledger.counts().finished == 3


def killed(study: OpenStudy, worker: str, *, began: float, heard: float, reaped: bool) -> None:
    """As if a worker with a grant had begun and been heard of last so many seconds ago."""
    noted = json.loads(json.dumps(study.optuna.user_attrs["tuner_gpu_hours"]))
    for grant in noted["grants"].values():
        grant["at"] -= began
    study.optuna.set_user_attr("tuner_gpu_hours", noted)
    with study.database.engine.begin() as connection:
        for table in (schema.claims, schema.verifications):
            mine = update(table).where(table.c.worker == worker)
            connection.execute(mine.values(leased_until=database_now() - heard + 60.0))
        mine = update(schema.workers).where(schema.workers.c.worker == worker)
        connection.execute(mine.values(seen_at=database_now() - heard))
    if reaped:
        for queue in (study.ledger, verifications_of([study])):
            queue.reap(worker=worker)


def signed_in(study: OpenStudy, worker: str) -> None:
    study.roster.join(worker, host="h", pid=1, device="d", device_uuid="d")


def test_a_killed_verification_run_costs_what_it_is_known_to_have_used(
    two: list[OpenStudy],
) -> None:
    plan_runs(two[0], 1)
    signed_in(two[0], "ann")
    queue = verifications_of(two)
    run = queue.claim("ann")
    assert run is not None
    assert run.token is not None
    assert hours_of(two).ask(run.token, "ann") == LIMIT_S
    killed(two[0], "ann", began=500.0, heard=470.0, reaped=True)
    assert [each.state for each in queue.runs()] == ["waiting"]
    assert 30.0 <= hours_of(two).spent_s() <= 45.0
    again = queue.claim("ben")
    assert again is not None
    assert again.token is not None
    granted = hours_of(two).ask(again.token, "ben")
    assert granted is not None
    assert LIMIT_S - 45.0 <= granted <= LIMIT_S - 30.0


def test_a_supervisor_that_saw_it_end_knows_it_to_the_moment(two: list[OpenStudy]) -> None:
    plan_runs(two[0], 1)
    for each in two:
        signed_in(each, "ann")
    run = verifications_of(two).claim("ann")
    assert run is not None
    assert run.token is not None
    assert hours_of(two).ask(run.token, "ann") == LIMIT_S
    for each in two:
        each.roster.leave("ann")
    killed(two[0], "ann", began=500.0, heard=470.0, reaped=True)
    assert hours_of(two).spent_s() == pytest.approx(30.0, abs=2.0)
    for each in two:  # as the supervisor says again at its own end
        each.roster.leave("ann")
    assert hours_of(two).spent_s() == pytest.approx(30.0, abs=2.0)


def test_a_killed_trial_costs_what_it_is_known_to_have_used(two: list[OpenStudy]) -> None:
    signed_in(two[0], "ann")
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    assert hours_of(two).ask(claim.token, "ann") == LIMIT_S
    killed(two[0], "ann", began=500.0, heard=470.0, reaped=True)
    assert 30.0 <= hours_of(two).spent_s() <= 45.0
    # It was cut off, and not dead: now it says what it took.
    hours_of(two).took(claim.token, 400.0)
    assert hours_of(two).spent_s() == pytest.approx(400.0)


@pytest.mark.parametrize("verify", [False, True])
def test_who_was_killed_while_it_waited_for_its_device_used_nothing_meanwhile(
    two: list[OpenStudy], verify: bool
) -> None:
    plan_runs(two[0], 1)
    signed_in(two[0], "ann")
    held = (verifications_of(two) if verify else two[0].ledger).claim("ann")
    assert held is not None
    assert held.token is not None
    granted = Granted(GpuGrants("ann"), held.token)
    assert granted.ask(two[0], two[0].policy())
    granted.waits(True)
    granted.keep()
    killed(two[0], "ann", began=500.0, heard=10.0, reaped=False)
    granted.waits(False)  # from now on it has it
    killed(two[0], "ann", began=7.0, heard=0.0, reaped=False)
    granted.waits(True)
    granted.keep()
    killed(two[0], "ann", began=300.0, heard=0.0, reaped=True)
    assert hours_of(two).spent_s() == pytest.approx(7.0, abs=3.0)
