"""Two lanes of one worker: while the trial of one trains, the other stores what came before and
makes the next trial ready.

What a worker does beside training is done by one lane at a time, at its desk. So a suggestion
follows from the trials before it alone, however the lanes are scheduled: the next trial is asked
for once the present one has begun, and what that comes to is stored after.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

LOOK_S = 0.02
"""How often who waits for its turn looks whether it shall still wait."""


class Desk:
    """Where one lane at a time works. Whoever works there leaves it while it waits or trains.

    `returning` is called by who comes back to it, before it may have to wait.
    """

    def __init__(self, returning: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._returning = returning

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Work there."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def left(self) -> Iterator[None]:
        """By who works there: leave it to the other lane meanwhile."""
        self._lock.release()
        try:
            yield
        finally:
            self._returning()
            self._lock.acquire()


class DeviceTurn:
    """The device's next training is that of whoever waited first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self, give_up: Callable[[], object]) -> Iterator[bool]:
        """Train in here; False where `give_up` said so before it came to that."""
        while not self._lock.acquire(timeout=LOOK_S):
            if give_up():
                yield False
                return
        try:
            yield not give_up()  # the training before may have been the last
        finally:
            self._lock.release()

    @property
    def is_taken(self) -> bool:
        """Whether a training is under way."""
        return self._lock.locked()


class News:
    """Wakes the lane that found nothing to do once the other has delivered something."""

    def __init__(self) -> None:
        self._happened = threading.Event()

    def tell(self) -> None:
        self._happened.set()

    def wait(self, seconds: float, give_up: Callable[[], object]) -> None:
        """Until there are some, so many seconds are over, or `give_up` says so."""
        deadline = time.monotonic() + seconds
        while not give_up() and (left := deadline - time.monotonic()) > 0:
            if self._happened.wait(min(LOOK_S, left)):
                self._happened.clear()
                return


class Lanes:
    """Runs the same work in several threads, the first of which is this one.

    The first failure of any is everybody's: `stop` is called, and it is raised once all have ended.
    """

    def __init__(self, count: int, stop: Callable[[], None]) -> None:
        self._count = count
        self._stop = stop
        self._failures: list[BaseException] = []

    def run(self, work: Callable[[], None]) -> None:
        """Do `work` in every lane.

        Raises:
            BaseException: what the first lane to fail raised.
        """
        others = [
            threading.Thread(target=self._survived, args=(work,), name=f"lane {n}", daemon=True)
            for n in range(1, self._count)
        ]
        for thread in others:
            thread.start()
        self._survived(work)
        for thread in others:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _survived(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for all
            self._failures.append(error)
            self._stop()
