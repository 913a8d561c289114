"""What keeping a trial costs, in statements and transactions: numbers that no busy machine changes.

`benchmarks/database/overhead.py` measures the same in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import TrialState
from sqlalchemy import Engine, event

from tests.support.databases import SQLITE_ALONE
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy

ATTRIBUTES = {f"attribute {number}": number / 3 for number in range(30)}
VALUES = (1.5, 0.25)


@contextmanager
def counted(engine: Engine) -> Iterator[dict[str, int]]:
    found = {"statements": 0, "transactions": 0}

    def statement(*_: object) -> None:
        found["statements"] += 1

    def transaction(*_: object) -> None:
        found["transactions"] += 1

    listeners = [
        ("before_cursor_execute", statement),
        ("commit", transaction),
        ("rollback", transaction),
    ]
    for name, listener in listeners:
        event.listen(engine, name, listener)
    yield found
    for name, listener in listeners:
        event.remove(engine, name, listener)


def ours(study: OpenStudy) -> None:
    """As a worker does: look for lost trials, claim, choose, renew the lease once, write the
    result."""
    study.ledger.reap()
    assert study.ledger.counts().left
    study.policy()
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ask(claim) is not None
    assert study.ledger.renew(claim)
    assert study.ledger.finish(
        claim, TrialResult(TrialState.COMPLETE, VALUES, Recorded.from_flat(ATTRIBUTES))
    )


def plain(study: optuna.Study, space: dict[str, optuna.distributions.BaseDistribution]) -> None:
    trial = study.ask(space)
    for key, value in ATTRIBUTES.items():
        trial.set_user_attr(key, value)
    study.tell(trial, VALUES)


@SQLITE_ALONE
def test_a_trial_takes_half_the_statements_and_transactions_of_plain_optuna(
    study: OpenStudy,
) -> None:
    study.optuna.sampler = RandomSampler(seed=1)
    storage = study.database.optuna
    other = optuna.create_study(
        storage=storage, directions=["minimize"] * 2, sampler=RandomSampler(seed=1)
    )
    space = study.definition.space.stored()
    ours(study)  # the default configuration, and whatever is read once
    plain(other, space)
    with counted(study.database.engine) as by_us:
        ours(study)
    with counted(study.database.engine) as by_optuna:
        plain(other, space)
    assert by_us["statements"] > 10  # they were counted
    for what, number in by_us.items():
        assert number < 0.55 * by_optuna[what], (what, by_us, by_optuna)
