"""The thread that keeps a lease, with a ledger that is made up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from tuner.config import StopReason
from tuner.storage.records import Claim
from tuner.worker.loop import KeptLease
from tuner.worker.process import StopFlag

if TYPE_CHECKING:
    from tuner.storage.queue.leased_queue import Queue
    from tuner.storage.queue.roster import Roster

PATIENCE_S = 60.0
HELD = Claim(work_id=1, trial_id=None, trial_number=3, token="t")


@dataclass
class Calls:
    """What the thread did, and what it is answered."""

    answers: list[Callable[[], bool]]
    """To each renewal; the last one also to all that follow."""
    done: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    heartbeat_s: float = 0.001

    def renew(self, held: object, had_s: float) -> bool:
        assert (held, had_s) == (HELD, 1.5)
        self.done.append("renew")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return answer()

    def report(self, worker: str) -> None:
        assert worker == "ann"
        self.done.append("report")

    def reap(self) -> None:
        self.done.append("reap")
        if self.done.count("reap") == 2:
            self.enough.set()

    def lease(self, stop: StopFlag | None = None) -> KeptLease:
        queue, roster = cast("Queue[Any]", self), cast("Roster", self)
        return KeptLease(HELD, queue, roster, "ann", stop or StopFlag(), lambda: 1.5)


def away() -> bool:
    raise OperationalError("UPDATE", {}, Exception("server closed the connection"))


def unheard_of() -> bool:
    raise KeyError("what nobody thought of")


@pytest.mark.parametrize("failing", [away, unheard_of])
def test_a_lease_is_renewed_and_others_are_looked_after_also_after_a_failure(
    failing: Callable[[], bool],
) -> None:
    calls = Calls([lambda: True, failing, lambda: True])
    with calls.lease() as lease:
        assert calls.enough.wait(PATIENCE_S)
        assert lease.should_stop() is None
    assert calls.done[:7] == ["renew", "report", "reap", "renew", "renew", "report", "reap"]


def test_work_whose_lease_is_lost_is_interrupted() -> None:
    lost = threading.Event()

    def taken_by_another() -> bool:
        lost.set()
        return False

    calls = Calls([taken_by_another])
    lease = calls.lease()
    with lease:
        assert lost.wait(PATIENCE_S)
        assert lease._lost.wait(PATIENCE_S)
        assert lease.should_stop() is StopReason.INTERRUPTED
    assert calls.done == ["renew"]


def test_a_signal_interrupts_the_work_too() -> None:
    stop = StopFlag()
    lease = Calls([lambda: True]).lease(stop)
    assert lease.should_stop() is None
    stop.set()
    assert lease.should_stop() is StopReason.INTERRUPTED
