"""What a name on the command line means:
a study in the database, or the file of an exported one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.storage.database import Database, open_database
from tuner.storage.retry import persistently
from tuner.storage.url import absolute, parse_url
from tuner.study.archive import Archive, is_archive_name, read_archive
from tuner.study.group import PREFIX, studies_meant
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import StudySnapshot, snapshot

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
