"""Verification runs: planned once, each claimed by one worker at a time, each with exactly one
result."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from optuna.trial import TrialState
from sqlalchemy import insert

from tests.support.concurrency import at_once
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.queue.leased_queue import MAX_ATTEMPTS
from tuner.storage.queue.verifications import PlannedRun, Verifications, recorded_rows
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


@pytest.fixture(autouse=True)
def _two_studies(database: Database) -> None:
    """That may be planned for."""
    known = {"definition": "{}", "definition_hash": "", "budget": 1, "policy": "{}"}
    with database.engine.begin() as connection:
        rows = [{"study_id": number, "created_at": 0.0, **known} for number in (1, 2)]
        connection.execute(insert(schema.studies), rows)


@pytest.fixture
def queue(database: Database) -> Verifications:
    return Verifications(database.engine, [1])


def test_a_plan_made_again_adds_only_what_is_new_and_is_claimed_in_its_order(
    queue: Verifications,
) -> None:
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
    claimed = [queue.claim(f"w{i}") for i in range(7)]
    assert [run and run.work_id for run in claimed] == [*(r.work_id for r in queue.runs()), None]
    assert (queue.counts().budget, queue.counts().running, queue.counts().finished) == (6, 6, 0)


def test_workers_at_once_never_get_the_same_run(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    Verifications(database.engine, [1]).add(planned(seeds=10, trials=2))
    database.close()
    answers = at_once(claim_five, database_url, processes=4)
    claimed = [work_id for answer in answers for work_id in answer]
    assert len(claimed) == len(set(claimed)) == 20


def claim_five(url: str) -> list[int]:
    database = open_database(parse_url(url), create=False)
    queue = Verifications(database.engine, [1])
    runs = [queue.claim(f"w{os.getpid()}") for _ in range(5)]
    database.close()
    return [run.work_id for run in runs if run is not None]


def test_skipping_touches_only_waiting_runs_of_that_session(
    database: Database, queue: Verifications
) -> None:
    queue.add(planned())
    queue.add(planned(seeds=1, trials=3, session="s2")[2:])
    queue.claim("w")
    assert queue.skip_waiting("s1", "too late") == 3
    assert [run.state for run in queue.runs() if run.session == "s1"] == [
        "running",
        "skipped",
        "skipped",
        "skipped",
    ]
    assert [run.state for run in queue.runs() if run.session == "s2"] == ["waiting"]
    assert queue.counts().budget == 2
    # Nor does another study see them.
    Verifications(database.engine, [2]).add(planned(study=2))
    both = Verifications(database.engine, [1, 2])
    assert len(both.runs()) == len(queue.runs()) + 4
    assert Verifications(database.engine, [3]).claim("w") is None


def test_a_file_that_says_how_often_a_run_was_lost_makes_few_rows_of_it(
    queue: Verifications,
) -> None:
    queue.add(planned(seeds=1, trials=1))
    (run,) = queue.runs()
    rows = recorded_rows(replace(run, losses=10**9, state="finished", result=RESULT))
    assert [row["state"] for row in rows] == ["lost"] * MAX_ATTEMPTS + ["finished"]
