"""What a trial or a verification run had its device for, by its own record: what budgets in time
are spent by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.record import Recorded


def device_seconds(recorded: Recorded) -> float:
    """Seconds that one piece of work held its device, with what it cost beside its training:
    set-up, evaluation, timings that were repeated, and the device's wait for it; 0 where nothing
    was recorded.

    `cycle_s` of a trial reaches from the end of the training before it to its own, so the trials
    of a worker add up to its time. Where that is not known, it is what the worker had it for, else
    the run itself. One that was resumed has its earlier part in `total_s` alone. Waiting for a
    device that somebody else had is not counted.
    """
    alone = recorded.total_s if recorded.total_s is not None else recorded.wall_clock_s
    return max(0.0, _had_s(recorded) or 0.0, (alone or 0.0) + _repeated_s(recorded))


def attempt_seconds(recorded: Recorded) -> float:
    """The same of the attempt alone that came to this result: without what earlier ones took of a
    trial that was resumed. All of it where nobody knows.
    """
    had = _had_s(recorded)
    return device_seconds(recorded) if had is None else max(0.0, had)


def _had_s(recorded: Recorded) -> float | None:
    had = recorded.cycle_s if recorded.cycle_s is not None else recorded.attempt_s
    return None if had is None else had - (recorded.wait_s or 0.0)


def _repeated_s(recorded: Recorded) -> float:
    """Of the timings that were repeated, all but the one that counts."""
    clocks = [_seconds(each) for each in recorded.timings or ()]
    return max(0.0, sum(clocks) - (recorded.wall_clock_s or 0.0)) if len(clocks) > 1 else 0.0


def _seconds(timing: Mapping[str, Any]) -> float:
    found = timing.get("wall_clock_s")
    return float(found) if isinstance(found, int | float) else 0.0
