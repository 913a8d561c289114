"""A study at one moment, to read and not to change: the same records whether it lies in a database
or in an exported file.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.queue.claims import Stint, stints
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.retry import persistently
from tuner.storage.url import absolute, parse_url
from tuner.study.archive import Archive, is_archive_name, read_archive
from tuner.study.group import PREFIX, studies_meant
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import StudyResults, TrialRecord, read_results

Curves = Callable[[Collection[int]], Mapping[int, tuple[EpochRow, ...]]]
"""The epochs of the trials with these numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySnapshot:
    """A study's search and its verification.

    What not every reader needs (`runs`, `curves`, `attempts`) is read when it is asked for, from a
    database that is open then.
    """

    name: str
    definition: StudyDefinition
    membership: Membership
    policy: SearchPolicy
    device_model: str | None
    results: StudyResults
    read_runs: Callable[[], tuple[VerificationRun, ...]]
    curves: Curves
    attempts: Callable[[], Sequence[Stint]]
    """Who was at which trial, in order.
    Of an exported study the attempts that counted are known."""

    @property
    def runs(self) -> tuple[VerificationRun, ...]:
        """Its verification runs, in the order of their plan."""
        return self.read_runs()

    def with_runs_read(self) -> StudySnapshot:
        """The same for who closes the database and then asks for the runs."""
        runs = self.runs
        return dataclasses.replace(self, read_runs=lambda: runs)

    @property
    def variant(self) -> str:
        return self.definition.variant

    @property
    def finished(self) -> int:
        """Trials that the search finished, however they ended."""
        return sum(record.state.is_finished() for record in self.results.records)

    def record(self, number: int) -> TrialRecord:
        return next(record for record in self.results.records if record.number == number)

    def configuration(self, number: int) -> TrialRecord:
        """The configuration of a trial, with what all its trials came to; of a trial that is not
        complete that trial.
        """
        return self.results.configuration_of(number) or self.record(number)


def snapshot(found: OpenStudy | Archive) -> StudySnapshot:
    """The study as its database has it now, or as it was exported."""
    return _of_archive(found) if isinstance(found, Archive) else _of_study(found)


def _of_study(opened: OpenStudy) -> StudySnapshot:
    return StudySnapshot(
        name=opened.name,
        definition=opened.definition,
        membership=opened.membership,
        policy=opened.policy(),
        device_model=opened.device_model(),
        results=read_results(opened),
        read_runs=functools.cache(opened.verifications.runs),
        curves=opened.epochs.of_trials,
        attempts=lambda: stints(opened.database.engine, opened.study_id),
    )


def _of_archive(archive: Archive) -> StudySnapshot:
    return StudySnapshot(
        name=archive.name,
        definition=archive.definition,
        membership=archive.membership,
        policy=archive.policy,
        device_model=archive.device_model,
        results=archive.results,
        read_runs=lambda: archive.verifications,
        curves=lambda numbers: {
            number: archive.curves[number] for number in numbers if number in archive.curves
        },
        attempts=lambda: [
            stint for record in archive.records if (stint := _stint(record)) is not None
        ],
    )


def _stint(record: TrialRecord) -> Stint | None:
    if record.started is None or record.ended is None:
        return None
    return Stint(
        trial_number=record.number,
        worker=record.place or "unknown",
        state="finished",
        began=_seconds(record.started),
        ended=_seconds(record.ended),
        stopped_by=record.recorded.stopped_by,
    )


def _seconds(iso: str) -> float:
    """Optuna's times are in UTC and do not say so."""
    return datetime.datetime.fromisoformat(iso).replace(tzinfo=datetime.UTC).timestamp()


# What a name on the command line means: a study in the database, or the file of an exported one.


STUDY = "study:"


def snapshot_named(name: str, database: Callable[[], Database]) -> StudySnapshot:
    """The study that `name` means; the database is opened only where it is asked for.

    `study:NAME` is a study of the database, whatever it is called. Any other name is a file where
    it ends as an exported study does and there is such a file; else it is a study of the database.

    Raises:
        UsageError: there is no such study, or the file is no exported one.
        StorageError: the database cannot be read.
    """
    return snapshot(_found(name, database))


def names_meant(name: str, database: Callable[[], Database]) -> list[str]:
    """`name`, or each search of the group where it is `group:NAME`, as `snapshot_named` takes them.

    Raises:
        UsageError: there is no such group.
        StorageError: the database cannot be read.
    """
    if not name.startswith(PREFIX):
        return [name]
    return [STUDY + study for study in studies_meant(database(), name)]


def opened_patiently(database: Database, names: str, *, retry_s: float) -> list[OpenStudy]:
    """Studies by their names with commas, each search of a group where it is `group:NAME`. An
    outage is waited for, `retry_s` at most.

    Raises:
        UsageError: there is no such study or group.
        DBAPIError, StorageInternalError: the database stayed away.
    """
    meant: list[str] = []
    for asked in names.split(","):
        look = functools.partial(studies_meant, database, asked.strip())
        meant += persistently(look, "the studies", retry_s=retry_s)
    return [
        persistently(functools.partial(open_study, database, name), "a study", retry_s=retry_s)
        for name in meant
    ]


def _found(name: str, database: Callable[[], Database]) -> OpenStudy | Archive:
    if name.startswith(STUDY):
        return open_study(database(), name.removeprefix(STUDY))
    if not is_archive_name(name):
        return open_study(database(), name)
    if Path(name).exists():
        return read_archive(Path(name))
    try:
        return open_study(database(), name)
    except TunerError as error:
        raise UsageError(
            f"there is no file {name}, and no study of that name either: {error}"
        ) from None


def says_which(name: str) -> bool:
    """True for a name of either form that `snapshot_named` tells apart from a variant's."""
    return name.startswith((STUDY, PREFIX)) or is_archive_name(name)


@contextmanager
def opened_if_needed(storage: str) -> Iterator[Callable[[], Database]]:
    """The database at this URL, opened at the first call and closed at the end."""
    opened: list[Database] = []

    def database() -> Database:
        if not opened:
            opened.append(open_database(absolute(parse_url(storage)), create=False))
        return opened[0]

    try:
        yield database
    finally:
        for each in opened:
            each.close()
