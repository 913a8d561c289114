"""Says of workers that wait for their devices for whom they wait:
they themselves tell only their logs.

That a worker waits it tells by its life signs; for whom, says the note beside the device's lock.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import AGAIN_S, WAITING_FOR_DEVICE, holder_among

PATIENT_S = 3.0
"""Launches that share a device take turns: so long a wait is nothing to speak of."""
LOOK_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wait:
    """Of the worker on one device. What was said stays known when the wait is over, so that turns
    do not fill pages.
    """

    since: float | None = None
    look_at: float = 0.0
    said: str = ""
    say_again: float = 0.0
    is_told: bool = False


@dataclass(slots=True)
class DeviceWaits:
    """The waits of a launch's workers."""

    _waits: dict[str, _Wait] = field(default_factory=dict)

    def look(self, device: Gpu | CpuCores, phase: str | None) -> None:
        """What the worker on `device` is at by now; None: there is none."""
        wait = self._waits.setdefault(device.label, _Wait())
        now = time.monotonic()
        if phase != WAITING_FOR_DEVICE:
            if wait.is_told and wait.since is not None:
                # A short trial can end between two looks, and its worker with it.
                end = "waits for its device no longer" if phase is None else "has its device now"
                _log.warning(
                    "the worker on %s %s, after %.0f s", device.label, end, now - wait.since
                )
            wait.since, wait.is_told = None, False
            return
        if wait.since is None:
            wait.since, wait.look_at = now, now + PATIENT_S
        if now < wait.look_at:
            return
        wait.look_at = now + LOOK_S
        holder = holder_among(device.lock_names)
        stopped = holder is not None and holder.is_stopped
        if now < wait.say_again and not (stopped and str(holder) != wait.said):
            return
        wait.said, wait.say_again, wait.is_told = str(holder), now + AGAIN_S, True
        _log.warning(
            "the worker on %s waits for its device, for %.0f s by now: %s",
            device.label,
            now - wait.since,
            holder or "another process has it",
        )
