"""The file of an SQLite database, before anything is written in it or beside it."""

from __future__ import annotations

import difflib
from pathlib import Path

from tuner.errors import StorageError

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
        if not path.is_file() or not _looks_like_sqlite(path):
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


def _looks_like_sqlite(path: Path) -> bool:
    """True also for an empty file, which SQLite takes for a new database."""
    with path.open("rb") as file:
        start = file.read(len(_SQLITE_MAGIC))
    return start in (b"", _SQLITE_MAGIC)
