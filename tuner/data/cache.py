"""Files in the user's cache: prepared arrays, keyed by content, and what was fetched from a place
that others share, a folder or a URL.

A cache may be missing, damaged or unwritable: it never fails a run. What is fetched is data, never
code. Whether it is the right data is for its hash to say, which the caller knows.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import re
import time
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from tuner.errors import DataError, UsageError
from tuner.files.durable import read_regular, replacing, write_durably

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
    try:
        write_durably(_path(folder, key), hashlib.sha256(payload).digest() + payload)
    except OSError as error:
        _LOG.warning("prepared data is not kept: cannot write to %s (%s)", folder, error.strerror)


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.joblib"


# Data in a place that others share: a folder, or a URL that files are fetched from.


MOST_BYTES = 1 << 30
"""Of one file that is fetched."""
SILENCE_S = 10.0
"""A server that says nothing for so long is given up."""
WHOLE_S = 1800.0
"""A file that has not come in so long is given up."""
_CHUNK = 1 << 16
_URL = re.compile(r"(https?|file):/+(.*)")


def url_of(place: Path | None) -> str | None:
    """The URL that was given in place of a folder; None where it is a folder.

    A path has one slash where a URL has two: `Path("https://host/data")` is `https:/host/data`.

    Raises:
        UsageError: it names a user or a password, which would be shown and logged.
    """
    match = _URL.fullmatch(str(place)) if place is not None else None
    if match is None:
        return None
    scheme, rest = match.groups()
    url = f"{scheme}:{'///' if scheme == 'file' else '//'}{rest}"
    if scheme != "file" and "@" in urlsplit(url).netloc:
        raise UsageError(
            "--data-dir: a URL with a user or a password in it is not taken, since it would be "
            "logged; expected e.g. https://host/folder"
        )
    return url


def told_to_others(place: Path) -> str:
    """The place as another process of this host is to be given it, wherever that runs."""
    return url_of(place) or str(place.absolute())


def file_in(place: Path, name: str, *, reuse: bool) -> Path:
    """Where the file `name` of a folder or URL can be read. With `reuse` what was fetched before
    does.

    Raises:
        DataError: it could not be fetched.
        UsageError: the URL is none.
    """
    url = url_of(place)
    if url is None:
        return place / name
    folder = user_cache() / "fetched" / hashlib.sha256(url.encode()).hexdigest()[:16]
    path = folder / name
    if not (reuse and path.is_file()):
        _fetch(f"{url.rstrip('/')}/{quote(name)}", path)
    return path


def transfer(url: str, file: IO[bytes], name: str, *, most_bytes: int = MOST_BYTES) -> None:
    """Write what is at `url` to `file`, with its progress on stderr.

    Raises:
        DataError: it is too long, or takes too long.
        OSError, HTTPException: it cannot be had.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from tuner.display.terminal import make_console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    deadline, left = time.monotonic() + WHOLE_S, most_bytes
    with (
        urllib.request.urlopen(url, timeout=SILENCE_S) as response,  # noqa: S310 - ours, or the user's
        Progress(*columns, console=make_console(stderr=True)) as progress,
    ):
        length = response.headers.get("Content-Length")
        bar = progress.add_task(f"downloading {name}", total=int(length) if length else None)
        while chunk := response.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise DataError(f"{url} holds more than {most_bytes >> 20} MiB; copy it by hand")
            if time.monotonic() > deadline:
                raise DataError(f"{url} has not come in {WHOLE_S:.0f} s; copy it by hand")
            file.write(chunk)
            progress.advance(bar, len(chunk))


def reason_of(error: OSError | HTTPException) -> object:
    """Why something could not be had, in a few words."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or error


def _fetch(url: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            transfer(url, file, path.name)
    except (OSError, HTTPException, ValueError) as error:
        reason = reason_of(error) if not isinstance(error, ValueError) else error
        raise DataError(
            f"{url} could not be fetched ({reason}); name a folder or URL that holds {path.name} "
            "with --data-dir"
        ) from None
