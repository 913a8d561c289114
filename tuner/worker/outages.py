"""Database calls of a worker: outages are waited for, and a disk that is full is named and waited
for without end.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tuner.files.durable import is_full, lacks_space
from tuner.storage.retry import DATABASE_FAILURES, NO_ROOM_BESIDE, cause_of, persistently
from tuner.study.open import OpenStudy
from tuner.worker.heartbeat import WAITING, Heartbeat
from tuner.worker.process import StopFlag

T = TypeVar("T")
LOOK_AGAIN_S = 5.0
_OF_A_FULL_DISK = (NO_ROOM_BESIDE, "unable to open database file")
"""What SQLite says as well when there is no room for a file that it needs beside the database."""
_log = logging.getLogger(__name__)


class _DiskFullError(Exception):
    """Unlike an outage, a full disk is waited for without end."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How the worker `name` tries again, and whom it tells meanwhile."""

    studies: Sequence[OpenStudy]
    name: str
    stop: StopFlag
    heartbeat: Heartbeat

    def __call__(self, action: Callable[[], T], what: str, *, until_stopped: bool = False) -> T:
        """Run `action` until the database takes it.

        With `until_stopped` a stop signal ends the waiting. Without, as for a result, only time
        ends it; but where the disk is full, a signal does.

        Raises:
            DBAPIError, StorageInternalError: the last failure.
        """
        self.heartbeat.phase("database")
        give_up = self._give_up if until_stopped else self._alive
        noted = False
        while True:
            try:
                done = persistently(self._full_apart(action), what, give_up=give_up)
            except _DiskFullError as full:
                failure = full.__cause__
                assert isinstance(failure, DATABASE_FAILURES)
                if not noted:
                    self._note(
                        f"disk full: {cause_of(failure)} ({self._place()}); waiting for space to "
                        f"store {what}"
                    )
                    noted = True
                if self._wait():
                    raise failure from None
                continue
            if noted:
                self._note(None)
            return done

    def _full_apart(self, action: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            try:
                return action()
            except DATABASE_FAILURES as error:
                if is_full(error) or self._no_room(error):
                    raise _DiskFullError from error
                raise

        return run

    def _no_room(self, error: Exception) -> bool:
        address = self.studies[0].database.address
        if not address.is_sqlite or not any(words in cause_of(error) for words in _OF_A_FULL_DISK):
            return False
        return lacks_space(address.sqlite_path.parent)

    def _wait(self) -> bool:
        """Until the next look; True when the worker was told to stop."""
        left = LOOK_AGAIN_S
        while left > 0:
            self.heartbeat.phase(WAITING)
            if self.stop.wait(min(1.0, left)):
                return True
            left -= 1.0
        return False

    def _give_up(self) -> bool:
        return self._alive() or self.stop.is_set()

    def _alive(self) -> bool:
        self.heartbeat.phase("database")
        return False

    def _place(self) -> str:
        """Where the space is missing."""
        address = self.studies[0].database.address
        return str(address.sqlite_path) if address.is_sqlite else str(address)

    def _note(self, text: str | None) -> None:
        if text is None:
            _log.info("there is space again")
        else:
            _log.error("%s", text)
        for opened in self.studies:
            with contextlib.suppress(*DATABASE_FAILURES):  # the note may need space too
                opened.roster.report(self.name, note=text and text[:200])
