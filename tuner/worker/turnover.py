"""What a worker's time between two trainings went to."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

from tuner.record import Recorded


@dataclass(slots=True)
class Turnover:
    """Of one device: since when it is free for the next training."""

    free_since: float | None = None
    """When the last training returned, with a result or not; None: there was none, or nothing to
    claim since."""

    def idle(self) -> None:
        """There was nothing to train."""
        self.free_since = None


@dataclass(slots=True)
class TrialTimes:
    """When what happened to one trial, in seconds of `time.perf_counter`."""

    turnover: Turnover
    _asks: float = 0.0
    _asked: float = 0.0
    _begins: float = 0.0
    _returned: float = 0.0
    _before: float | None = None
    """When the training before this one returned."""

    def asks(self) -> None:
        """For the trial's parameters."""
        self._asks = time.perf_counter()

    def asked(self) -> None:
        """It has them."""
        self._asked = time.perf_counter()

    def begins(self) -> None:
        """The training has its device."""
        self._begins, self._before = time.perf_counter(), self.turnover.free_since

    def returned(self) -> None:
        """The training has returned."""
        self._returned = self.turnover.free_since = time.perf_counter()

    @property
    def waits_s(self) -> float:
        """Seconds that the device has been free by now."""
        since = self.turnover.free_since
        return 0.0 if since is None else time.perf_counter() - since

    @property
    def waited_s(self) -> float:
        """Seconds that the device was free before it."""
        return 0.0 if self._before is None else self._begins - self._before

    @property
    def took_s(self) -> float:
        """Of the device, the time before it that it waited included."""
        since = self._begins if self._before is None else self._before
        return self._returned - since

    def said_in(self, recorded: Recorded) -> Recorded:
        """The record of the trial with this in it.

        `cycle_s` is since the training before it returned. Of that the device waited
        `suggest_wait_s` for this trial's parameters, and `turnover_s` for the rest: the other one's
        result stored, this trial claimed and prepared. What was done while that one trained is in
        none of them.
        """
        recorded = dataclasses.replace(
            recorded,
            suggest_s=self._asked - self._asks,
            attempt_s=self._returned - self._begins + self._asked - self._asks,
        )
        if self._before is None:
            return recorded
        waited_s = max(0.0, self._asked - max(self._asks, self._before))
        return dataclasses.replace(
            recorded,
            suggest_wait_s=waited_s,
            cycle_s=self._returned - self._before,
            turnover_s=self._begins - self._before - waited_s,
        )
