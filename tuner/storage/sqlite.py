"""Connections to an SQLite file, also to one that may only be read,
and how their transactions begin.
"""

from __future__ import annotations

import difflib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection

from tuner.errors import StorageError
from tuner.storage.dialects import DURABLE, READING
from tuner.storage.retry import FULL, GONE
from tuner.storage.url import DatabaseUrl

Kind = TypeVar("Kind", bound=sqlite3.Connection)
SQLITE_TIMEOUT_S = 60.0
_LOGGED_AT, _LOGGED = 18, b"\x02"
"""Where in a file it stands that its writers keep a log, and how (SQLite's file format, 1.3)."""


ROOM_BYTES = 64 << 10
"""SQLite keeps an index of its log beside the file, of at least half as much."""


class ReadOnlyConnection(sqlite3.Connection):
    """To a file that this user cannot write."""


class FullDiskConnection(ReadOnlyConnection):
    """To a file beside which there is no room for what a writer needs. Who writes hears why, in
    the words of a failure that passes.
    """

    why: str = FULL

    def cursor(self, _factory: object = None) -> sqlite3.Cursor:  # type: ignore[override]
        return super().cursor(_CursorOnFullDisk)


class _CursorOnFullDisk(sqlite3.Cursor):
    def execute(self, *given: Any) -> Self:
        with self._in_other_words():
            return super().execute(*given)

    def executemany(self, *given: Any) -> Self:
        with self._in_other_words():
            return super().executemany(*given)

    @contextmanager
    def _in_other_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
            assert isinstance(self.connection, FullDiskConnection)
            raise sqlite3.OperationalError(self.connection.why) from error


def sqlite_connector(path: Path) -> Callable[[], sqlite3.Connection]:
    """What makes connections to the file at `path`: once it was there, to no other."""
    there = False

    def connect() -> sqlite3.Connection:
        nonlocal there
        exists = path.exists()
        if there and not exists:
            # SQLite would make an empty one, and a backup would find something in its place.
            raise sqlite3.OperationalError(f"{GONE}: {path}")
        if exists and not may_be_written(path):
            return read_only(path)
        # isolation_level None: we say BEGIN ourselves. Python's implicit BEGIN is deferred, and two
        # workers that upgrade a read lock at once would deadlock into "database is locked".
        connection = sqlite3.connect(
            path, timeout=SQLITE_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            connection.close()
            connection = _without_room(path, error)
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        there = True
        return connection

    return connect


def may_be_written(path: Path) -> bool:
    """Whether this user may write the file, and beside it: a writer keeps its log there."""
    beside = path.absolute().parent
    beside_too = os.access(beside, os.W_OK | os.X_OK, effective_ids=True)
    return beside_too and os.access(path, os.W_OK, effective_ids=True)


def begin_on_sqlite(connection: Connection) -> None:
    """Begin with the right to write, unless only reading is wanted or possible."""
    options = connection.get_execution_options()
    reads = isinstance(connection.connection.dbapi_connection, ReadOnlyConnection)
    if options.get(DURABLE, False) and not reads:
        connection.exec_driver_sql("PRAGMA synchronous=FULL")
    reads |= options.get(READING, False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def read_only(path: Path) -> sqlite3.Connection:
    """As its writers leave it, or, where none is at work, as a file that nobody changes meanwhile.

    SQLite needs a writer's log and index beside the file, or to make them; without either it reads
    only what it is told to be immutable.
    """
    connection = _connection(path, "mode=ro", ReadOnlyConnection)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        connection = _connection(path, "immutable=1", ReadOnlyConnection)
    return connection


def read_untouched(path: Path) -> sqlite3.Connection:
    """The same of somebody else's file: nothing is made beside one whose writers keep a log, while
    none of them is at work.
    """
    with path.open("rb") as file:
        keeps_log = file.read(_LOGGED_AT + 1)[_LOGGED_AT:] == _LOGGED
    if keeps_log and not path.with_name(f"{path.name}-wal").exists():
        return _connection(path, "immutable=1", ReadOnlyConnection)
    return read_only(path)


def _without_room(path: Path, error: sqlite3.OperationalError) -> FullDiskConnection:
    """To read a file that SQLite could not open because there is no room beside it: nobody is at
    work on it, or what a writer needs would be there.

    Raises:
        OperationalError: that is not so, or the log holds what the file lacks.
    """
    full = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
    disk = os.statvfs(path) if full and path.exists() else None  # it may have been taken away
    if disk is None or disk.f_bavail * disk.f_frsize >= ROOM_BYTES:
        raise error
    # SQLite says no more than 'disk I/O error' where its index does not fit.
    why, log = f"{FULL}: {path}", path.with_name(f"{path.name}-wal")
    if (log.exists() and log.stat().st_size) or not path.stat().st_size:
        raise sqlite3.OperationalError(why) from error
    connection = _connection(path, "immutable=1", FullDiskConnection)
    connection.why = why
    return connection


def _connection(path: Path, how: str, kind: type[Kind]) -> Kind:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?{how}",
        uri=True,
        timeout=SQLITE_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        factory=kind,
    )


# The file of an SQLite database, before anything is written in it or beside it.


_SQLITE_MAGIC = b"SQLite format 3\0"


def prepare_sqlite_file(path: Path, *, create: bool) -> None:
    """Make the folder of a new database, with `create`; refuse what is no database.

    Raises:
        StorageError: it is a folder or another kind of file, or not there without `create`, or its
            folder cannot be made.
    """
    if path.exists():
        if path.is_dir():
            raise StorageError(
                f"the database {path} is a folder; name a file in it, e.g. "
                f"sqlite:///{path / 'tuner.db'}"
            )
        # Before anything, a lock say, is written beside somebody's file.
        if not path.is_file() or not looks_like_sqlite(path):
            raise StorageError(
                f"the file {path} is not an SQLite database; name another by --storage "
                "sqlite:///FILE"
            )
        return
    if not create:
        raise StorageError(
            f"there is no database {path} yet{_near(path)}; 'tuner launch' creates it, or name "
            "another by --storage (in Python: storage=)"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot create the folder {path.parent} for the database: {error.strerror}; "
            "name a writable place by --storage sqlite:///FILE"
        ) from None


def _near(path: Path) -> str:
    """Files beside where the database should be whose names are much like its own."""
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(name) for name in near)}?)" if near else ""


def looks_like_sqlite(path: Path) -> bool:
    """True also for an empty file, which SQLite takes for a new database."""
    with path.open("rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    return start in (b"", _SQLITE_MAGIC)


# Where an SQLite database lies and how many share it: said once, before it hurts.


MOST_WORKERS = 4
"""On one SQLite database. It lets one of them write at a time: more wait for each other."""

_NETWORK = (
    "9p afs beegfs ceph cifs coda glusterfs gpfs lustre ncpfs nfs nfs4 orangefs panfs pvfs2 "
    "smb2 smb3 smbfs wekafs"
)
_FUSE = "beegfs ceph cephfs gcsfuse glusterfs juicefs rclone s3fs sshfs weed"
NETWORK_FILESYSTEMS = frozenset(_NETWORK.split()) | {f"fuse.{name}" for name in _FUSE.split()}
"""As mounts name them: file locks there depend on a server,
and SQLite depends on file locks."""


def cautions(address: DatabaseUrl, *, workers: int = 1) -> list[str]:
    """What to know before `workers` workers use the database at `address`:
    nothing, or a line for each danger.
    """
    if not address.is_sqlite:
        return []
    found = []
    path = address.sqlite_path.absolute()
    if (place := network_mount(path)) is not None:
        kind, mount = place
        found.append(
            f"the database {path} lies on a network filesystem ({kind} at {mount}), whose file "
            "locks SQLite cannot rely on: it may be damaged; put it on a local disk, or share a "
            "PostgreSQL (docs/several-machines.md)"
        )
    if workers > MOST_WORKERS:
        found.append(
            f"{workers} workers share an SQLite database, which takes one writer at a time: beyond "
            f"{MOST_WORKERS} they wait for each other; a PostgreSQL serves them all "
            "(docs/several-machines.md)"
        )
    return found


def network_mount(path: Path) -> tuple[str, str] | None:
    """Kind and mount point of the network filesystem that `path` lies on;
    None when it is on another kind.

    Of several mounts on the path the innermost counts, of two at one place the later.
    """
    import psutil

    real = path.resolve()
    kind, innermost = "", Path("/")
    for each in psutil.disk_partitions(all=True):
        mount = Path(each.mountpoint)
        if real.is_relative_to(mount) and len(mount.parts) >= len(innermost.parts):
            kind, innermost = each.fstype, mount
    return (kind, str(innermost)) if kind in NETWORK_FILESYSTEMS else None
