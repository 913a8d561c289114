"""One worker of a launch elsewhere, kept alive on its own device: started again when it dies,
killed when it hangs.

It stands where a launch's supervisor would stand. Whoever placed it starts it again as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.devices import CpuCores, Gpu
from tuner.devices.lock import check_folder
from tuner.launch.crew import Crew
from tuner.launch.outcome import Outcome, StopRequests
from tuner.launch.verification import VerificationWork
from tuner.storage.database import open_database
from tuner.storage.retry import RETRY_S, in_one_sentence
from tuner.storage.url import absolute, parse_url
from tuner.study.code import require_trust, with_code
from tuner.study.named import opened_patiently
from tuner.study.open import OpenStudy
from tuner.study.own_file import programs_of
from tuner.worker.paths import WorkerPaths, deliver, working_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorker:
    """What the worker is to do, as the options of `tuner worker` say it."""

    studies: str
    storage: str
    verify: bool
    task: str | None
    data_dir: Path | None
    hang_limit_s: float | None
    trust: bool
    trusted_code: Sequence[str] = ()
    """Hashes of files that may run though only the database has them."""


@dataclass(frozen=True, slots=True)
class _Said:
    """Tells what is to be known; there is nothing to look at."""

    note: Callable[[str], None]

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        del studies
        yield lambda: None


def keep(
    asked: KeptWorker,
    device: Gpu | CpuCores,
    *,
    stop: StopRequests,
    note: Callable[[str], None],
) -> Outcome:
    """Have one worker after another work on `device` until nothing is left to do.

    `stop` ends it before. A database that is down at the start is waited for.

    Raises:
        UsageError: a study that is not there, is of another device model, or runs code that nobody
            trusts here.
        StorageError: a database that cannot be used.
        TunerError: the worker could not be kept alive.
    """
    address = absolute(parse_url(asked.storage))
    check_folder()
    opened_there = open_database(address, create=False, retry_s=RETRY_S)
    with in_one_sentence(), closing(opened_there) as database:
        opened = opened_patiently(database, asked.studies, retry_s=RETRY_S)
        for each in opened:
            each.refuse_other_device(device.model)
            if (line := require_trust(each, trust=asked.trust)) is not None:
                note(line)
            with_code(each, trust=asked.trust, trusted=asked.trusted_code)
        crew = Crew(
            devices=(device,),
            task=asked.task,
            data_dir=asked.data_dir,
            deadline=None,
            hang_limit_s=asked.hang_limit_s,
            verify=asked.verify,
            trusted_code=(*asked.trusted_code, *programs_of(each.definition for each in opened)),
        )
        deliver(opened, WorkerPaths(working_folder(address)))
        work = [VerificationWork.of(opened)] if asked.verify else opened
        return crew.work(work, opened, _Said(note), stop)
