"""What this user has run or trusted on this host, by its hash, in a folder of the user's alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tuner.data.cache import user_cache
from tuner.errors import UsageError
from tuner.files.durable import read_regular, write_durably
from tuner.files.private_folder import private_folder
from tuner.storage.code_texts import MOST_BYTES


def path_of(sha256: str, name: str) -> Path:
    """Where the user's copy of what has this hash is, or will be.

    Raises:
        DataError: there is no place for caches.
    """
    return user_cache() / "code" / sha256 / name


def is_whole(path: Path, digest: str) -> bool:
    """Whether this user's own copy is there, as it was.

    Raises:
        PrivateFolderError: others could have written it.
    """
    try:
        private_folder(path.parent.parent)
        content = read_regular(path, at_most=MOST_BYTES)
    except (OSError, ValueError):
        return False
    return hashlib.sha256(content).hexdigest() == digest


def keep_at(path: Path, sha256: str, content: bytes) -> Path:
    """The path of this user's own copy, which is made where it is missing or damaged.

    Raises:
        PrivateFolderError: its folder is not this user's alone.
        UsageError: it cannot be written.
    """
    if not is_whole(path, sha256):
        private_folder(private_folder(path.parent.parent) / sha256)
        try:
            write_durably(path, content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return path
