"""What a worker that was killed had of shared device hours: as much as it is known to have used,
and it keeps nobody else waiting."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from sqlalchemy import update

from tests.support.claims import expire
from tests.support.databases import SQLITE_ALONE
from tests.support.device_hours import hours_of, plan_runs
from tests.support.in_process_worker import DEVICE, result_of
from tests.support.small_study import definition
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.queue.leased_queue import Queue
from tuner.study.open import OpenStudy, create_or_resume
from tuner.trial.job import Waited
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.process import StopFlag
from tuner.worker.trial_source import VerificationSource, _Run

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
@SQLITE_ALONE
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
@SQLITE_ALONE
def test_a_grant_of_a_trial_is_settled_by_who_verifies(two: list[OpenStudy]) -> None:
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    assert hours_of(two).ask(claim.token, "ann") == LIMIT_S
    expire(two[0], claim)
    plan_runs(two[0], 2)
    assert works(two, source=VerificationSource)
    assert [each.state for each in verifications_of(two).runs()] == ["finished"] * 2


@pytest.mark.usefixtures("at_first_sight")
@SQLITE_ALONE
def test_a_grant_of_a_verification_run_is_settled_by_who_searches(two: list[OpenStudy]) -> None:
    plan_runs(two[0], 1)
    run = verifications_of(two).claim("ann")
    assert run is not None
    assert run.token is not None
    assert hours_of(two).ask(run.token, "ann") == LIMIT_S
    with two[0].database.engine.begin() as connection:
        connection.execute(update(schema.work).values(leased_until=database_now() - 1.0))
    assert works([two[1]])
    assert two[1].ledger.counts().finished == 3


@pytest.mark.parametrize("verify", [False, True])
def test_who_was_killed_is_charged_to_its_last_life_sign(
    two: list[OpenStudy], verify: bool
) -> None:
    """Until it is taken back, with all that it was granted."""
    plan_runs(two[0], 1)
    queue: Queue[Any] = verifications_of(two) if verify else two[0].ledger
    held: Any = queue.claim("ann")
    assert hours_of(two).ask(held.token, "ann") == LIMIT_S
    assert queue.renew(held, 30.0)
    assert hours_of(two).spent_s() == LIMIT_S
    queue.reap(worker="ann")
    assert hours_of(two).spent_s() == 30.0
    again: Any = queue.claim("ben")
    assert hours_of(two).ask(again.token, "ben") == LIMIT_S - 30.0
    queue.give_back(again, 5.0)
    # The first was cut off, and not dead: now it says what it took.
    hours_of(two).took(held.token, 400.0)
    assert hours_of(two).spent_s() == 405.0


@SQLITE_ALONE
def test_what_a_killed_worker_used_counts_in_the_time_of_a_search_too(
    two: list[OpenStudy],
) -> None:
    held: Any = two[0].ledger.claim("ann")
    assert two[0].ledger.renew(held, 12.0)
    two[0].ledger.reap(worker="ann")
    assert two[0].ledger.spent_s() == 12.0


@SQLITE_ALONE
def test_a_wait_for_the_device_is_no_time_with_it(two: list[OpenStudy]) -> None:
    """What a life sign says of a piece of work that waits."""
    waited = Waited()
    piece = object.__new__(_Run)
    piece._waited, piece._had_s, piece._since = waited, None, time.perf_counter()
    piece._devices = 1
    waited.told(True)
    before = piece.had_s()
    time.sleep(0.05)
    assert piece.had_s() == pytest.approx(before, abs=0.02)
    waited.told(False)
    time.sleep(0.05)
    assert piece.had_s() >= before + 0.05
