"""How long a worker had a trial that it lost: a lease that runs on is nobody's time."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import update

from tuner.storage.queue.claims import stints
from tuner.storage.schema import work
from tuner.study.open import OpenStudy


def test_a_lost_worker_had_its_trial_until_it_took_another_or_its_lease_ended(
    opened: OpenStudy,
) -> None:
    now = time.time()
    for ago, lease_ends in ((100.0, 1000.0), (40.0, -20.0)):
        claim = opened.ledger.claim("ann")
        assert claim is not None
        assert opened.ledger.reap(worker="ann", state="lost") == 1
        times = {"claimed_at": now - ago, "leased_until": now + lease_ends}
        with opened.database.engine.begin() as connection:
            connection.execute(update(work).where(work.c.token == claim.token).values(**times))
    first, second = stints(opened.database.engine, opened.study_id)
    assert [each.state for each in (first, second)] == ["lost", "lost"]
    assert (first.began, first.ended) == pytest.approx((now - 100.0, now - 40.0), abs=0.01)
    assert (second.began, second.ended) == pytest.approx((now - 40.0, now - 20.0), abs=0.01)
