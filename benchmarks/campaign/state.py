"""The campaign's state between two calls: one file with the database, the workers' logs and a list of the calls."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sqlite3
import sys
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tuner.errors import UsageError
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive
from tuner.study.transfer import restore as restore_study

NAME = "campaign.tar.gz"
DATABASE = "tuner.db"
CALLS = "calls.jsonl"
LOG_BYTES = 200_000
"""Of each log, its end."""
EVERY_S = 120.0
"""A call that is killed loses at most this."""


def restore(archive: Path, folder: Path) -> bool:
    """Put the state that lies in the file `archive` into the empty `folder`. False where there is no such file.

    Raises:
        SystemExit: the file is damaged.
    """
    if not archive.exists():
        return False
    try:
        content = gzip.decompress(
            archive.read_bytes()
        )  # the whole of it: its checksum stands at the end
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zlib.error, OSError, EOFError) as error:
        raise SystemExit(
            f"{archive} cannot be read ({error}); give the file that an earlier call wrote"
        ) from None
    if not (folder / DATABASE).exists():
        raise SystemExit(f"{archive} holds no {DATABASE}; give the file that an earlier call wrote")
    return True


def restore_exports(state: Path, folder: Path, studies: Sequence[str]) -> bool:
    """Make the state in the empty `folder` of those of the `studies` that lie exported in `state`. False where none does.

    Raises:
        SystemExit: a file is damaged.
    """
    paths = [path for name in studies if (path := state / f"{name}.json.gz").exists()]
    if not paths:
        return False
    database = open_database(parse_url(f"sqlite:///{folder / DATABASE}"))
    try:
        for path in paths:
            archive = read_archive(path)
            restore_study(database, archive, archive.name)
    except UsageError as error:
        raise SystemExit(str(error)) from None
    finally:
        database.close()
    (folder / CALLS).write_text(calls_in(state), encoding="utf-8")
    return True


def refuse_to_lose(archive: Path, given: Path) -> None:
    """Before `archive` is written over by a call that goes on from the file `given`: it must be the same state.

    Raises:
        SystemExit: it is another one, such as that of a call whose file was not handed on.
    """
    if archive.exists() and (not given.exists() or given.read_bytes() != archive.read_bytes()):
        raise SystemExit(
            f"{archive} is another state than {given}, and would be written over: copy it there to go on from it, "
            "or move it away"
        )


def calls_in(folder: Path) -> str:
    """The list of the calls that ended, a line each; empty where the first one was killed."""
    return (folder / CALLS).read_text(encoding="utf-8") if (folder / CALLS).exists() else ""


def save(folder: Path, archive: Path) -> int:
    """Write the state in `folder` to the file `archive`, whole or not at all; its size in bytes.

    The database may be in use: SQLite itself makes the copy. Checkpoints of trainings under way are left out: a trial
    that was handed back begins anew.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as apart:
        copy = Path(apart, DATABASE)
        with (
            contextlib.closing(sqlite3.connect(folder / DATABASE)) as live,
            contextlib.closing(sqlite3.connect(copy)) as to,
        ):
            live.backup(to)
        unfinished = archive.with_name(f".{archive.name}")
        with tarfile.open(unfinished, "w:gz") as tar:
            tar.add(copy, DATABASE)
            if (folder / CALLS).exists():
                tar.add(folder / CALLS, CALLS)
            for log in sorted(folder.glob("logs/*.log")):
                end = log.read_bytes()[-LOG_BYTES:]
                entry = tarfile.TarInfo(f"logs/{log.name}")
                entry.size = len(end)
                tar.addfile(entry, io.BytesIO(end))
        os.replace(unfinished, archive)  # noqa: PTH105 - the one call that replaces a file at once
    return archive.stat().st_size


@contextmanager
def saved_regularly(folder: Path, archive: Path, *, every_s: float = EVERY_S) -> Iterator[None]:
    """While inside, and once at the end, the state in `folder` is written to `archive`."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(every_s):
            try:
                if (folder / DATABASE).exists():
                    save(folder, archive)
            except (OSError, sqlite3.Error) as error:
                print(f"the state could not be saved now: {error}", file=sys.stderr)

    thread = threading.Thread(target=keep, name="saving", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if (folder / DATABASE).exists():
            save(folder, archive)
