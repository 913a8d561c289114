"""Verification runs: planned once, each claimed by one worker at a time, each with exactly one
result."""

from __future__ import annotations

import os

import pytest
from optuna.trial import TrialState
from sqlalchemy import update

from tests.support.claims import while_locked
from tests.support.concurrency import at_once
from tests.support.present import present
from tests.support.stopped_clock import StoppedClock
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.queue.verifications import PlannedRun, Verifications
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url

PARAMS = {"learning_rate": 1e-3, "hidden_size": 64}
RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.8), Recorded(converged=True))


def planned(
    *, seeds: int = 2, trials: int = 2, session: str = "s1", study: int = 1
) -> list[PlannedRun]:
    return [
        PlannedRun(
            study_id=study,
            trial_number=trial,
            params=PARAMS,
            seed=4_000_000_000 + block,  # beyond 31 bits, as seeds are
            block=block,
            place=block * trials + trial,
            session=session,
            plan={"seeds": seeds},
        )
        for block in range(seeds)
        for trial in range(trials)
    ]


@pytest.fixture
def queue(database: Database) -> Verifications:
    return Verifications(database.engine, [1])


def expire(database: Database) -> None:
    """Let all leases run out now."""
    with database.engine.begin() as connection:
        connection.execute(update(schema.verifications).values(leased_until=0.0))


def states(queue: Verifications) -> list[str]:
    return [run.state for run in queue.runs()]


def test_a_plan_made_again_adds_only_what_is_new(queue: Verifications) -> None:
    assert queue.add(planned()) == 4
    assert queue.add(planned()) == 0
    assert queue.add(planned(seeds=3)) == 2
    assert [(run.trial_number, run.block) for run in queue.runs()] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (0, 2),
        (1, 2),
    ]
    assert queue.runs()[0].params == PARAMS


def test_runs_are_claimed_in_the_order_of_the_plan_until_none_waits(queue: Verifications) -> None:
    queue.add(planned())
    claimed = [queue.claim(f"w{i}") for i in range(5)]
    assert [(run.trial_number, run.block) if run else None for run in claimed] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        None,
    ]
    assert (queue.counts().budget, queue.counts().running, queue.counts().finished) == (4, 4, 0)


def test_workers_at_once_never_get_the_same_run(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    Verifications(database.engine, [1]).add(planned(seeds=10, trials=2))
    database.close()
    answers = at_once(claim_five, database_url, processes=4)
    claimed = [run_id for answer in answers for run_id in answer]
    assert len(claimed) == len(set(claimed)) == 20


def claim_five(url: str) -> list[int]:
    database = open_database(parse_url(url), create=False)
    queue = Verifications(database.engine, [1])
    runs = [queue.claim(f"w{os.getpid()}") for _ in range(5)]
    database.close()
    return [run.run_id for run in runs if run is not None]


def test_a_result_is_recorded_once_and_stays(queue: Verifications) -> None:
    queue.add(planned(seeds=1, trials=1))
    run = queue.claim("w")
    assert run is not None
    assert queue.finish(run, RESULT)
    assert queue.finish(run, RESULT)  # as after an outage that hid the first answer
    other = TrialResult(TrialState.COMPLETE, (9.9, 9.9), Recorded())
    assert not queue.finish(run, other)
    queue.give_back(run)
    (stored,) = queue.runs()
    assert (stored.state, stored.result) == ("finished", RESULT)
    assert queue.counts().left == 0


def test_a_run_handed_back_is_the_next_one_again(queue: Verifications) -> None:
    queue.add(planned())
    first = queue.claim("w")
    assert first is not None
    queue.give_back(first)
    again = queue.claim("w")
    assert again is not None
    assert again.run_id == first.run_id
    assert again.losses == 0
    assert not queue.renew(first)
    assert queue.renew(again)


@pytest.mark.usefixtures("at_first_sight")
def test_a_worker_whose_lease_ran_out_cannot_count(
    queue: Verifications, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue.add(planned(seeds=1, trials=1))
    slow = queue.claim("slow")
    assert slow is not None
    assert queue.reap() == 0
    expire(database)
    assert queue.reap() == 1
    assert (
        "the run of trial 0 on seed 4000000000 is taken back: slow let its lease run out"
        in caplog.text
    )
    fresh = queue.claim("fresh")
    assert fresh is not None
    assert fresh.losses == 1
    late = TrialResult(TrialState.COMPLETE, (9.9, 0.9), Recorded(host="slow"))
    assert not queue.finish(slow, late)
    assert not queue.finish(
        slow.ticket, late
    )  # as from its disk, after an outage that hid the first answer
    assert states(queue) == ["running"]
    assert queue.finish(fresh, RESULT)
    assert not queue.finish(slow, late)
    assert queue.reap() == 0
    (run,) = queue.runs()
    assert (run.result, run.late, queue.results("slow")) == (RESULT, (late,), 0)


def test_every_result_that_came_too_late_is_kept(queue: Verifications) -> None:
    queue.add(planned(seeds=1, trials=1))
    results = [TrialResult(TrialState.COMPLETE, (float(n), 0.9), Recorded()) for n in range(3)]
    lost = []
    for state in ("lost", "returned", "lost"):
        lost.append(queue.claim("w"))
        queue.reap(worker="w", state=state)
    for run, result in zip(lost, results, strict=True):
        assert run is not None
        assert not queue.finish(run, result)
    (run,) = queue.runs()
    assert run.state == "waiting"
    assert sorted(run.late, key=str) == sorted(results, key=str)
    assert queue.counts().finished == 0


def test_leases_that_ran_out_all_at_once_can_be_renewed_before_the_runs_are_taken_back(
    database: Database, queue: Verifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine was asleep: who wakes first must not take the others for dead."""
    clock = StoppedClock(100.0)
    monkeypatch.setattr("tuner.storage.queue.leased_queue.time", clock)
    watching = Verifications(database.engine, [1])
    watching.confirm_s = 30.0
    queue.add(planned(seeds=1))
    living, dead = queue.claim("living"), queue.claim("dead")
    assert living is not None
    assert dead is not None
    expire(database)
    assert watching.reap() == 0
    assert queue.renew(living)
    clock.now += 20.0
    assert watching.reap() == 0
    clock.now += 10.0
    assert watching.reap() == 1
    assert states(queue) == ["running", "waiting"]
    expire(database)
    for _ in range(3):
        clock.now += 31.0  # who looks this rarely cannot know what happened in between
        assert watching.reap() == 0
    clock.now += 30.0
    assert watching.reap() == 1


def test_only_a_workers_own_results_are_its_own(queue: Verifications) -> None:
    queue.add(planned(seeds=1, trials=2))
    first = queue.claim("ann")
    assert first is not None
    assert queue.results("ann") == 0
    assert queue.finish(first, RESULT)
    for _ in range(3):
        assert queue.claim("bob") is not None
        queue.reap(worker="bob")
    assert states(queue) == ["finished", "finished"]  # the second was set aside
    assert (queue.results("ann"), queue.results("bob")) == (1, 0)


def test_what_a_dead_worker_held_comes_back_at_once(queue: Verifications) -> None:
    queue.add(planned())
    queue.claim("dead")
    queue.claim("alive")
    assert queue.reap(worker="dead") == 1
    assert [run.state for run in queue.runs()] == ["waiting", "running", "waiting", "waiting"]


def test_a_run_that_loses_three_workers_is_set_aside_as_failed(queue: Verifications) -> None:
    queue.add(planned(seeds=1, trials=1))
    for _ in range(2):
        queue.claim("w")
        queue.reap(worker="w", state="returned")  # killed on purpose: not held against it
    for _ in range(3):
        assert queue.claim("w") is not None
        queue.reap(worker="w")
    (run,) = queue.runs()
    assert run.state == "finished"
    assert run.result is not None
    assert run.result.state == TrialState.FAIL
    assert "lost 3 times" in present(run.result.recorded.failure)
    assert queue.claim("w") is None


def test_skipping_touches_only_waiting_runs_of_that_session(queue: Verifications) -> None:
    queue.add(planned())
    queue.add(planned(seeds=1, trials=3, session="s2")[2:])
    queue.claim("w")
    assert queue.skip_waiting("s1", "clear", look=6) == 3
    assert [run.state for run in queue.runs() if run.session == "s1"] == [
        "running",
        "skipped",
        "skipped",
        "skipped",
    ]
    assert [run.state for run in queue.runs() if run.session == "s2"] == ["waiting"]
    assert queue.counts().budget == 2


def test_studies_do_not_see_each_others_runs(database: Database, queue: Verifications) -> None:
    queue.add(planned())
    Verifications(database.engine, [2]).add(planned(study=2))
    both = Verifications(database.engine, [1, 2])
    assert (len(queue.runs()), len(both.runs())) == (4, 8)
    assert Verifications(database.engine, [3]).claim("w") is None


def test_a_dead_workers_run_is_taken_back_also_while_its_last_words_are_being_written(
    database: Database, queue: Verifications
) -> None:
    queue.add(planned(seeds=1, trials=1))
    assert queue.claim("ann") is not None
    last_words = update(schema.verifications).values(leased_until=1e12)
    assert while_locked(database, last_words, lambda: queue.reap(worker="ann")) == 1
    assert states(queue) == ["waiting"]
