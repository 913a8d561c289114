"""A worker that finds nothing to do: it keeps nobody waiting, and looks ever less often."""

from __future__ import annotations

from tests.support.in_process_worker import DEVICE, opened, three_epochs
from tuner.study.open import OpenStudy
from tuner.worker.loop import IDLE_S, LONGEST_IDLE_S, SHARE_OF_IDLE, Worker

__all__ = ["opened"]


def test_what_others_have_all_of_is_not_claimed(opened: OpenStudy) -> None:
    source = Worker([opened], DEVICE, three_epochs, name="ann")._source
    assert [turn.all_taken for turn in source.in_turn()] == [False]
    claims = [opened.ledger.claim("bob") for _ in range(2)]
    assert [turn.all_taken for turn in source.in_turn()] == [True]
    assert claims[1] is not None
    opened.ledger.give_back(claims[1])
    assert [turn.all_taken for turn in source.in_turn()] == [False]


def test_the_longer_it_is_idle_the_longer_it_waits(opened: OpenStudy) -> None:
    waited: list[float] = []
    worker = Worker([opened], DEVICE, three_epochs, name="ann")
    bobs = [opened.ledger.claim("bob") for _ in range(2)]

    def idle(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            for claim in bobs:
                assert claim is not None
                opened.ledger.give_back(claim)

    worker._idle = idle  # type: ignore[method-assign]
    worker.run()
    assert opened.ledger.counts().finished == 2
    assert waited == [IDLE_S] * 3
    assert 0 < SHARE_OF_IDLE * LONGEST_IDLE_S <= IDLE_S
