"""Prepared arrays on disk, keyed by content.

A cache may be missing, damaged or unwritable: it never fails a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from tuner.errors import DataError
from tuner.files.durable import read_regular, replacing

_LOG = logging.getLogger(__name__)
_DIGEST_SIZE = 32


def default_folder() -> Path:
    """Where prepared data is kept for this user."""
    return user_cache() / "prepared"


def user_cache() -> Path:
    """The user's folder for what can be made or downloaded again.

    Raises:
        DataError: there is no home, nor anything else to go by.
    """
    from platformdirs import user_cache_dir

    try:
        return Path(user_cache_dir("tuner"))
    except RuntimeError:
        raise DataError(
            "there is no home folder for a cache; name a folder for it: XDG_CACHE_HOME=DIR"
        ) from None


def text_path(kind: str, key: str) -> Path:
    """Where a small text of a kind is kept for this user.

    Raises:
        DataError: there is no place for caches.
    """
    return user_cache() / kind / f"{key[:32]}.json"


def keep_text(kind: str, key: str, text: str) -> None:
    """For the next time; a cache that cannot be written is none."""
    with contextlib.suppress(OSError, DataError):
        path = text_path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())


def kept_text(kind: str, key: str, *, at_most: int) -> str | None:
    """What was kept; None where there is nothing that can be read."""
    try:
        return read_regular(text_path(kind, key), at_most=at_most).decode()
    except (OSError, ValueError, DataError):
        return None


def load(folder: Path, key: str) -> dict[str, Any] | None:
    """What was stored under `key`; None where there is nothing, or where it is damaged.

    What is damaged is then built again.
    """
    path = _path(folder, key)
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except OSError:
        return None
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        # A cache that users share: what is unpickled is run, and this may be anybody's.
        _LOG.warning("%s may be written by others; preparing the data again", path)
        return None
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    # Cut short or altered: never handed to the unpickler.
    if hashlib.sha256(payload).digest() != digest:
        _LOG.warning("%s is damaged; preparing the data again", path)
        return None
    import joblib

    try:
        stored = joblib.load(io.BytesIO(payload))
    except Exception as error:  # noqa: BLE001  pickles of another version fail in many ways, and none may stop a run
        _LOG.warning("%s cannot be read (%s); preparing the data again", path, error)
        return None
    return stored if isinstance(stored, dict) else None


def store(folder: Path, key: str, content: dict[str, Any]) -> None:
    """Store `content` under `key` in one step; a folder that cannot be written to is a warning."""
    import joblib

    buffer = io.BytesIO()
    joblib.dump(content, buffer)
    payload = buffer.getvalue()
    partial: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{key[:16]}.", delete=False) as file:
            partial = Path(file.name)
            file.write(hashlib.sha256(payload).digest() + payload)
        os.replace(partial, _path(folder, key))  # noqa: PTH105
    except OSError as error:
        _LOG.warning("prepared data is not kept: cannot write to %s (%s)", folder, error.strerror)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.joblib"
