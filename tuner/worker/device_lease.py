"""A worker's device, among workers that its lock files do not reach: its lease in the database.

The lease is taken before the lock file, always, and kept between trainings while nobody else wants
the device. A thread renews it. What a training cannot know while it runs, it is told at its end:
whether it had the device alone all the time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from tuner.devices.host import lock_domain
from tuner.devices.lock import AGAIN_S, WAITING_FOR_DEVICE
from tuner.display.text import shown
from tuner.storage.queue.device_leases import HELD, Ahead, DeviceLeases, Standing
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.worker.paths import Retry

POLL_S = 0.5
"""How often who waits asks whether it is its turn."""
LOOK_S = 1.0
"""After a training: who waits is looked for where that was last done longer ago than this."""
_STOP_LOOK_S = 0.02
_log = logging.getLogger(__name__)


def now() -> float:
    """Seconds on a clock that goes on while the machine sleeps, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DeviceLease:
    """The lease of one worker on its device; one training at a time uses it.

    `domain` says whose lock files reach each other; `label` is what the device is called in a log.
    """

    def __init__(
        self,
        leases: DeviceLeases,
        label: str,
        stored: Retry,
        domain: Callable[[], str] = lock_domain,
    ) -> None:
        self._leases, self._label, self._stored = leases, label, stored
        self._current_domain = domain
        self._state = threading.Lock()
        self._database = threading.Lock()
        """One statement about the lease at a time. Never waited for at the end of a training."""
        self._held = self._in_use = self._others_wait = self._took_over = self._lost = False
        self._domain = self._disturbed = ""
        self._good_until = self._looked = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    # -- around a training -------------------------------------------------------------------------

    @contextmanager
    def taken(self, give_up: Callable[[], object]) -> Iterator[bool]:
        """Have the device; waits for whoever has it. False where `give_up` said so meanwhile.

        Raises:
            DeviceLockError: the folder of the device locks is none to rely on.
            DBAPIError, StorageInternalError: the database stayed away.
        """
        if not (self._still_held() or self._waited_for(give_up)):
            yield False
            return
        try:
            yield True
        finally:
            with self._state:
                self._in_use = False
                due = self._others_wait
            if due:
                self._release()

    def is_lost(self) -> bool:
        """Whether somebody else has been given the device during this training."""
        return self._lost

    def why_not_alone(self) -> str:
        """To be asked at the end of a training, while the device is taken: why its timing is not to
        be trusted; empty where nothing speaks against it.

        Asks the database only where the lease may have run out, or another's was taken over.

        Raises:
            DBAPIError, StorageInternalError: it stayed away for too long.
        """
        with self._state:
            sure = self._lost or (now() < self._good_until and not self._took_over)
        if not sure:
            self._stored(self._renew, "a look at the lease on the device")
        with self._state:
            lost, disturbed = self._lost, self._disturbed
            self._disturbed = ""
        if disturbed:
            self._stored(self._leases.forgive, "a look at the lease on the device")
        if lost:
            return "the lease on the device ran out meanwhile, and another worker was given it"
        return disturbed

    def look(self) -> None:
        """See whether others wait for the device, where that was not done just now. An outage is no
        reason to stop.
        """
        if now() >= self._looked + LOOK_S:
            self._try_to_renew()

    def close(self) -> None:
        """Give the device up for good, unless a training still uses it: then the lease runs out."""
        self._ended.set()
        self._release()

    # -- getting it --------------------------------------------------------------------------------

    def _still_held(self) -> bool:
        """True, and it is in use, where it was held all along and nobody waits for it."""
        domain = self._current_domain()  # its folder may have been cleaned up meanwhile
        with self._state:
            fresh = self._held and now() < self._good_until
            self._in_use = fresh and not self._others_wait and domain == self._domain
            self._lost = False
            return self._in_use

    def _waited_for(self, give_up: Callable[[], object]) -> bool:
        said, again, ask = "", 0.0, self._advance
        while True:
            ahead = self._stored(ask, "the lease on the device", until_stopped=True)
            if ahead is None:
                self._keep()
                return True
            if give_up():
                self._release(always=True)
                return False
            line = _who(ahead)
            if line != said or time.monotonic() >= again:
                said, again = line, time.monotonic() + AGAIN_S
                _log.info("waiting for %s: %s", self._label, line)
            ask = self._ask_again
            self._still_waiting()
            until = time.monotonic() + POLL_S
            while time.monotonic() < until and not give_up():
                time.sleep(_STOP_LOOK_S)

    def _ask_again(self) -> Ahead | None:
        self._still_waiting()  # it is no database that is waited for
        return self._advance()

    def _still_waiting(self) -> None:
        self._stored.heartbeat.phase(WAITING_FOR_DEVICE)

    def _advance(self) -> Ahead | None:
        with self._database:
            asked, domain = now(), self._current_domain()
            ahead, took_over = self._leases.advance(domain)
            if ahead is None:
                with self._state:
                    self._took_over |= took_over
                    self._held = self._in_use = True
                    self._others_wait = self._lost = False
                    self._domain, self._disturbed = domain, ""
                    self._good_until = asked + self._leases.lease_s
        return ahead

    # -- keeping it --------------------------------------------------------------------------------

    def _keep(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._renewing, name="device", daemon=True)
            self._thread.start()

    def _renewing(self) -> None:
        while not self._ended.wait(self._leases.heartbeat_s):
            self._try_to_renew()

    def _try_to_renew(self) -> None:
        try:
            self._renew()
        except DATABASE_FAILURES as error:
            _log.warning("the lease on %s could not be renewed (%s)", self._label, cause_of(error))

    def _renew(self) -> None:
        with self._database:
            with self._state:
                if not self._held:
                    return
            asked = now()
            standing = self._leases.renew(self._domain)
            if self._noted(standing, asked):
                self._leases.tell_disturbed(self._domain)
        if standing.others_wait:
            self._release()

    def _noted(self, standing: Standing, asked: float) -> bool:
        """Whether somebody else has the device by now, and a training of ours goes on there."""
        with self._state:
            self._looked = now()
            self._others_wait = standing.others_wait
            self._disturbed = standing.disturbed or self._disturbed
            if not standing.lost:
                self._good_until = asked + self._leases.lease_s
                return False
            self._held, self._lost = False, self._in_use
            return self._in_use

    def _release(self, *, always: bool = False) -> None:
        """Unless a training uses it. `always`: a place in the queue is left as well."""
        with self._database:
            with self._state:
                if self._in_use or not (self._held or always):
                    return
                self._held = self._took_over = self._others_wait = False
            try:
                self._leases.release()
            except DATABASE_FAILURES as error:  # then it runs out
                _log.warning("%s could not be given up (%s)", self._label, cause_of(error))


def _who(ahead: Ahead) -> str:
    since = datetime.fromtimestamp(ahead.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    does = "has it" if ahead.state == HELD else "waits for it as well,"
    line = f"worker {shown(ahead.worker)} on {shown(ahead.host)} {does} since {since}"
    return f"{line}; its lease has run out" if ahead.ran_out else line
