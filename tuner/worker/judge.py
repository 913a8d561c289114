"""A process that looks whether searches may stop by themselves: `python -m tuner.worker.judge`.

Beside the workers and never in them: a look fits a model, and a worker's process times trainings.
It gives way to everything else on its cores, has one thread, sees no GPU and imports no torch. What
it finds it writes to the database, where every machine's next claim sees it. It ends when its
standard input does, which is with whoever started it.

Arguments: the most share of one core's time that looks may take, then names of studies. The
database's address comes from the environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from tuner.display.log import log_to_stderr
from tuner.errors import TunerError
from tuner.files.environment import STORAGE_VARIABLE
from tuner.storage.database import open_database
from tuner.storage.retry import DATABASE_FAILURES, RETRY_S, cause_of
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.verdict.until import next_look, stop_if_little_left

NICE = 10
"""Where trainings have all cores, as on a CPU: a tenth of one while it looks, and no more than its
share over time. With less it would hardly ever end a look."""
LOOK_S = 1.0
"""Between two looks at how many trials there are, which cost nothing."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Judged:
    """A search, and with how many finished trials it was last looked at."""

    opened: OpenStudy
    until: float | None = None
    trials: int = 0

    def look(self) -> None:
        """Stop the search if it is due to be looked at and little is left to gain.

        Raises:
            TunerError: the study is there no more, or cannot be read.
        """
        until, counts = self.opened.policy().until, self.opened.ledger.counts()
        if until != self.until:
            self.until, self.trials = until, 0
        if until is None or not counts.left or counts.ended_early:
            return
        if counts.finished < next_look(self.trials):
            return
        self.trials = counts.finished
        if (found := stop_if_little_left(self.opened)) is not None:
            _log.info("%s: at most %.3f is left to gain", self.opened.name, found.at_most)


def judge(searches: list[Judged], most_share: float, *, wait: float = LOOK_S) -> None:
    """Look at the searches until standard input ends."""
    pause_s = 0.0
    while not select.select([sys.stdin], [], [], max(wait, pause_s))[0]:
        began = time.process_time()
        for each in list(searches):
            try:
                each.look()
            except DATABASE_FAILURES as error:  # those at work wait for it
                _log.warning("the database did not answer (%s)", cause_of(error))
            except TunerError as error:
                _log.warning("%s is looked at no more: %s", each.opened.name, error)
                searches.remove(each)
        took_s = time.process_time() - began
        pause_s = took_s / most_share - took_s


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    with contextlib.suppress(OSError):
        os.nice(NICE)
    log_to_stderr()
    most_share, *names = arguments
    address = parse_url(environment[STORAGE_VARIABLE])
    with closing(open_database(address, create=False, retry_s=RETRY_S)) as database:
        judge([Judged(open_study(database, name)) for name in names], float(most_share))


if __name__ == "__main__":
    main(sys.argv[1:], os.environ)
