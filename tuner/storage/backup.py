"""A copy of a whole database at one moment, taken while workers go on.

SQLite's own backup copies within one transaction of reading, so it holds up nobody who writes, and
has what is in the log beside the file. PostgreSQL's `pg_dump` does the same on a server.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
from pathlib import Path

from tuner.errors import EmptyDatabaseError, StorageError, UsageError
from tuner.files.child import ran
from tuner.files.durable import replacing
from tuner.storage import schema
from tuner.storage.database import reachable
from tuner.storage.sqlite import sqlite_connector
from tuner.storage.url import DatabaseUrl

PG_DUMP = "pg_dump"


def back_up(address: DatabaseUrl, file: Path, *, overwrite: bool = False) -> None:
    """Write the database at `address`, whatever the version of its tables, to `file`: an SQLite
    file, or an archive for `pg_restore`. It is there whole or not at all.

    Raises:
        UsageError: the file is there already, without `overwrite`; or it is no plain file, or the
            database itself.
        EmptyDatabaseError: there are no tuner tables.
        StorageError: the database cannot be read, the file cannot be written, `pg_dump` is missing
            or fails, or it is a database of another kind.
    """
    if address.dialect not in ("sqlite", "postgresql"):
        raise StorageError(
            f"{address} is backed up by its own tools: mysqldump --single-transaction DATABASE"
        )
    _refuse(address, file, overwrite=overwrite)
    with reachable(address) as engine, engine.connect() as connection:
        if not schema.exists(connection):
            raise EmptyDatabaseError(f"there are no tuner tables in {address}; nothing to back up")
    try:
        # Never for others to read while it grows: what studies hold is nobody else's.
        with replacing(file, mode=0o600) as partial:
            (_copy_file if address.is_sqlite else _dump)(address, Path(partial.name))
            os.fsync(partial.fileno())
    except OSError as error:
        raise StorageError(
            f"cannot write the backup {file}: {error.strerror}; name another place"
        ) from None


def _refuse(address: DatabaseUrl, file: Path, *, overwrite: bool) -> None:
    if file.is_dir():
        raise UsageError(f"{file}: is a folder; name a file")
    if not file.exists():
        return
    if not file.is_file():
        raise UsageError(f"{file}: is a pipe or a device, and would keep no backup; name a file")
    if address.is_sqlite and address.sqlite_path.exists() and file.samefile(address.sqlite_path):
        raise UsageError(f"{file}: is the database itself; name another file")
    if not overwrite:
        raise UsageError(
            f"{file}: is there already; name another file, or say --force to write over it"
        )


def _copy_file(address: DatabaseUrl, partial: Path) -> None:
    try:
        with (
            contextlib.closing(sqlite_connector(address.sqlite_path)()) as source,
            contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, with no log beside it
            (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise StorageError(
            f"the database {address} could not be copied: {error}; check the disk, and "
            "'tuner db check' looks at the database"
        ) from None
    if found != "ok":
        raise StorageError(
            f"the copy of {address} is damaged, and so is the database: {found}; "
            "'tuner db check' says more"
        )


def _dump(address: DatabaseUrl, partial: Path) -> None:
    url = address.url.set(drivername="postgresql")
    command = [PG_DUMP, "--no-password", "--format=custom"]
    where = url.render_as_string(hide_password=False)  # the password stands apart
    if shutil.which(PG_DUMP) is None:
        shown = shlex.join([*command, "--file=FILE", f"--dbname={where}"])
        raise StorageError(
            f"{PG_DUMP} is not installed here (a package postgresql-client has it); where it is, "
            f"run: {shown}"
        )
    if address.parameters:
        names = ", ".join(sorted(address.parameters))
        raise StorageError(
            f"{PG_DUMP} takes no secrets from the URL ({names}); run it yourself, with these in a "
            "service file"
        )
    environment = dict(os.environ)
    if address.password is not None:
        environment["PGPASSWORD"] = address.password
    done = ran([*command, f"--file={partial}", f"--dbname={where}"], environment=environment)
    if done.code:
        said = [line.strip() for line in done.said.splitlines() if "error" in line]
        cause = (said or ["it said nothing"])[0].removeprefix("pg_dump: ").removeprefix("error: ")
        cause = address.masked(cause)
        raise StorageError(
            f"{PG_DUMP} could not copy {address}: {cause}; it has to be of the server's version or "
            "newer, and its role has to read all tables (docs/several-machines.md)"
        )
