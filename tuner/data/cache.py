"""Prepared arrays on disk, keyed by content. A cache may be missing, damaged or unwritable: it never fails a run."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

_LOG = logging.getLogger(__name__)
_DIGEST_SIZE = 32


def default_folder() -> Path:
    """Where prepared data is kept for this user."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("tuner")) / "prepared"


def load(folder: Path, key: str) -> dict[str, Any] | None:
    """What was stored under `key`; None where there is nothing or where it is damaged (it is then built again)."""
    path = _path(folder, key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    if hashlib.sha256(payload).digest() != digest:  # cut short or altered: never handed to the unpickler
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
