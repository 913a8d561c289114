"""One contract for every queue: what holds of a trial that is claimed holds of a verification run,
too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import TrialState
from sqlalchemy import select, update

from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.queue.leased_queue import MAX_ATTEMPTS, Queue
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.records import Claim, TrialResult
from tuner.study.open import OpenStudy

RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.8), Recorded(converged=True))
OTHER = TrialResult(TrialState.COMPLETE, (9.9, 9.9), Recorded(converged=True))


def trials(study: OpenStudy) -> Queue[Any]:
    study.ledger.set_budget(1)
    return study.ledger


def runs(study: OpenStudy) -> Queue[Any]:
    params = study.definition.defaults.as_dict()
    run = PlannedRun(
        study_id=study.study_id,
        trial_number=0,
        params=params,
        seed=7,
        block=0,
        place=0,
        session="s",
        plan={},
    )
    study.verifications.add([run])
    return study.verifications


@pytest.fixture(params=[trials, runs], ids=["trials", "runs"])
def one_left(request: pytest.FixtureRequest, study: OpenStudy) -> Queue[Any]:
    """A queue with one piece of work."""
    make: Callable[[OpenStudy], Queue[Any]] = request.param
    return make(study)


def late_results(study: OpenStudy) -> str:
    """Whatever is kept of results that do not count."""
    query = select(schema.work.c.result).where(schema.work.c.state.in_(["lost", "returned"]))
    with study.database.engine.connect() as connection:
        return " ".join(text or "" for text in connection.execute(query).scalars())


def test_a_claim_is_made_once_and_its_result_counts_once(
    one_left: Queue[Any],
) -> None:
    """Who cannot know whether an outage hid the answer says everything again."""
    queue = one_left
    held: Any = queue.claim("ann", token="a" * 32)
    assert queue.claim("ann", token="a" * 32) == held
    assert queue.claim("bob") is None
    stranger = replace(held if isinstance(held, Claim) else held.ticket, token="0" * 32)
    assert not queue.renew(stranger)
    assert not queue.finish(stranger, OTHER)
    queue.give_back(stranger)
    assert queue.renew(held)
    assert (queue.finish(held, RESULT), queue.finish(held, RESULT)) == (True, True)
    assert not queue.finish(held, OTHER)
    assert not queue.renew(held)
    queue.give_back(held)
    counts = queue.counts()
    assert (counts.running, counts.finished, counts.left) == (0, 1, 0)
    assert (queue.results("ann"), queue.results("bob")) == (1, 0)


@pytest.mark.usefixtures("at_first_sight")
def test_a_lost_lease_is_named_and_its_late_result_is_kept_and_never_counts(
    one_left: Queue[Any],
    study: OpenStudy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = one_left
    held: Any = queue.claim("ann")
    with study.database.engine.begin() as connection:
        connection.execute(update(schema.work).values(leased_until=0.0))
    assert queue.reap() == 1
    assert "is taken back: ann let its lease run out" in caplog.text
    assert not queue.renew(held)
    assert not queue.finish(held, OTHER)
    assert not queue.finish(held, RESULT)  # the first one said of a token stays
    kept = late_results(study)
    assert "9.9" in kept
    assert "1.5" not in kept
    assert (queue.counts().finished, queue.results("ann")) == (0, 0)
    assert queue.claim("bob") is not None


def test_only_what_loses_its_workers_is_set_aside(
    one_left: Queue[Any],
) -> None:
    queue = one_left
    for _ in range(MAX_ATTEMPTS):  # handed back, and killed on purpose
        held: Any = queue.claim("ann")
        queue.give_back(held)
        assert queue.claim("ann") is not None
        assert queue.reap(worker="ann", state="returned") == 1
    for _ in range(MAX_ATTEMPTS):
        assert queue.claim("ann") is not None
        assert queue.reap(worker="ann") == 1
    assert queue.claim("ann") is None
    assert (queue.counts().finished, queue.results("ann")) == (1, 0)
    queue.settle()
    assert queue.reap() == 0
