"""How long the runs of a session of a verification may have devices: said with its plan.

Runs that have not begun by then are taken off the plan. A session is in blocks, in which every
configuration has its turn, so what did run tells as much of each.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.storage.queue.runs import VerificationRun
from tuner.storage.queue.verifications import Verifications

ALLOWANCE = "device_s"
"""In a plan: seconds of devices for all runs of its session."""
SPENT = "the time on devices that its session had was spent"


def skip_what_is_too_late(queue: Verifications) -> int:
    """Take the runs that wait off the plan where their session has had its time. Returns how
    many.
    """
    skipped = 0
    for session, plan in queue.waiting_plans().items():
        may_take = plan.get(ALLOWANCE)
        if may_take is not None and queue.spent_s(session) >= may_take:
            skipped += queue.skip_waiting(session, SPENT)
    return skipped


def in_time(queue: Verifications, run: VerificationRun, beside: Mapping[int, float]) -> bool:
    """Whether a run that is claimed may still begin. `beside` are the seconds of runs that have
    ended and may not be stored yet, by their numbers.
    """
    may_take = run.plan.get(ALLOWANCE)
    return may_take is None or queue.spent_s(run.session, beside) < may_take
