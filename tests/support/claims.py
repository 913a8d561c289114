"""Claims as workers make them, and what the tables say of them: for the tests of the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Executable, select, text, update

from tests.support.cli_processes import wait_for
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.queue.claims import Ledger
from tuner.storage.records import Claim, TrialResult
from tuner.study.open import OpenStudy

T = TypeVar("T")
ATTRIBUTES: dict[str, Any] = {
    "stopped_by": "converged",
    "converged": True,
    "epochs": 7,
    "val_loss": 0.25,
    "test_mql/a b": 1e-7,
    "failure": None,
    "versions": {"torch": "2", "cuda": None},
    "note": "ä { } % \" '",
}
RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.25), Recorded.from_flat(ATTRIBUTES))


@pytest.fixture
def at_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that ran out are taken back at once, but where a test says otherwise."""
    monkeypatch.setattr("tuner.storage.queue.leased_queue.CONFIRM_SHARE", 0.0)


def start(
    study: OpenStudy, worker: str = "ann", ledger: Ledger | None = None
) -> tuple[Claim, FrozenTrial]:
    """Claim and ask, as a worker does."""
    claim = (ledger or study.ledger).claim(worker)
    assert claim is not None
    trial = study.ask(claim)
    assert trial is not None
    assert trial.number == claim.trial_number
    return claim, trial


def expire(study: OpenStudy, claim: Claim) -> None:
    """Let a lease run out now."""
    with study.database.engine.begin() as connection:
        mine = schema.work.c.work_id == claim.work_id
        connection.execute(update(schema.work).where(mine).values(leased_until=0.0))


def claim_states(study: OpenStudy) -> list[str]:
    """Of every attempt: what waits for one is left out."""
    with study.database.engine.connect() as connection:
        query = select(schema.work.c.state).where(schema.work.c.state != "waiting")
        query = query.order_by(schema.work.c.work_id)
        return list(connection.execute(query).scalars())


def trial_states(study: OpenStudy) -> list[str]:
    """As Optuna has them."""
    return [trial.state.name for trial in study.database.optuna.get_all_trials(study.study_id)]


def while_locked(database: Database, by: Executable, action: Callable[[], T]) -> T:
    """What `action` returns that begins while another transaction holds the rows of `by`; that ends
    when it waits."""
    if database.address.dialect != "postgresql":
        pytest.skip("only there it can be seen that somebody waits for a row")
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
        "wait_event_type = 'Lock'"
    )

    def waits() -> bool:
        with database.engine.connect() as connection:
            return bool(connection.execute(waiting).scalar_one())

    answers: list[T] = []
    thread = threading.Thread(target=lambda: answers.append(action()))
    with database.engine.begin() as connection:
        connection.execute(by)
        thread.start()
        wait_for(lambda: waits() or not thread.is_alive(), "an end, or a wait")
    thread.join()
    return answers[0]
