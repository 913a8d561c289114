"""Files that are either there whole or not at all,
also after a crash, and what a full disk looks like.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tuner.errors import UsageError

TEMPORARY = ".tmp"
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_WORDS = (
    "database or disk is full",
    "No space left on device",
    "Disk quota exceeded",
    "is full",
)
"""How SQLite, PostgreSQL (also while it extends a file) and MySQL say it."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644, prefix: str = ".tuner-") -> Iterator[IO[bytes]]:
    """A file to write, which is moved to `path` in one step where the block ends well. Of a link it
    is the file that it leads to; what is no plain file, such as a pipe or a device, stays what it
    is, and is written to. Whatever a user named is written through here.

    Raises:
        OSError: it could not be written; what was there before stays.
    """
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    plain = not path.exists() or path.is_file()  # of a pipe in /dev/fd, `place` is the name of none
    partial: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=place.parent if plain else None, prefix=prefix, suffix=TEMPORARY, delete=False
        ) as file:
            partial = Path(file.name)
            yield file
        if plain:
            partial.chmod(mode)
            partial.replace(place)
        else:
            path.write_bytes(partial.read_bytes())
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def put(path: Path, data: bytes) -> None:
    """Write a file in one step, as `replacing` does.

    Raises:
        OSError: it could not be written; what was there before stays.
    """
    with replacing(path) as file:
        file.write(data)


def write_durably(path: Path, data: bytes) -> None:
    """Put `data` at `path`, as `replacing` does, for this user alone: a crash of the machine leaves
    the old file, the new one, or none.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Begun as its own name does: who clears a file away finds what a killed process left of it.
    with replacing(path, mode=0o600, prefix=f"{path.name}.") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def open_plain(path: Path, *, or_fed: bool = False) -> IO[bytes]:
    """Open a plain file that a user named, to read; a link to one is as good. With `or_fed` also a
    pipe without a name, such as bash's `<(...)`, which ends with the command that feeds it.

    Raises:
        OSError: it is none (to read a pipe or a device could last for ever), or cannot be read.
    """
    # Without waiting: to open a pipe lasts until somebody writes into it.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    mode = os.fstat(file.fileno()).st_mode
    fed = or_fed and stat.S_ISFIFO(mode) and not path.resolve().exists()
    if not stat.S_ISREG(mode) and not fed:
        file.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device; name a plain file")
    os.set_blocking(file.fileno(), True)
    return file


def read_regular(path: Path, *, at_most: int) -> bytes:
    """The bytes of a plain file.

    Raises:
        ValueError: it is none (a link, a pipe, a folder: opening it could block, or lead
            elsewhere), or holds more than `at_most` bytes.
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if status.st_size > at_most:
            raise ValueError(
                f"it holds {status.st_size} bytes, more than the {at_most} expected at most"
            )
        return file.read(at_most)


PROBE_BYTES = 256 << 10


def lacks_space(folder: Path) -> bool:
    """Whether a small file finds no room in `folder`, for want of space or by a quota."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="probe-", suffix=TEMPORARY) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError as error:
        return error.errno in _FULL
    return False


def is_full(error: BaseException) -> bool:
    """True when `error`, or what it came from, says that a disk or a quota is used up."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        inner = getattr(seen, "orig", None)
        if inner is not None and any(words in str(inner) for words in _FULL_WORDS):
            return True
        seen = seen.__cause__
    return False


# A mark in every figure that is written, so that a command knows its own files from others.


MARK = b"a figure of tuner"
COMMENT = b"<!-- " + MARK + b" -->"
PNG_HEADER_BYTES = 33
"""The signature and the first chunk, which says how large the picture is."""


def marked(figure: bytes, kind: str) -> bytes:
    """The same figure, of a `kind` such as `png`, with the mark where no reader shows it."""
    if kind == "png":
        text = b"tEXt" + b"Software\0" + MARK
        chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
        return figure[:PNG_HEADER_BYTES] + chunk + figure[PNG_HEADER_BYTES:]
    if kind == "pdf":  # a comment; before the end it would move what the file's table points to
        return figure + b"\n%" + MARK + b"\n"
    tag = b"<svg" if kind == "svg" else b"<head"
    end = figure.index(b">", figure.index(tag)) + 1
    return figure[:end] + COMMENT + figure[end:]


# What files hold, by their hashes.


def file_sha256(path: Path) -> str:
    """SHA-256 of what a file holds, read once as long as it is the same file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        seen = path.stat()
        return _digest(path, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


@functools.lru_cache(maxsize=10_000)
def _digest(path: Path, *_as_it_is: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
