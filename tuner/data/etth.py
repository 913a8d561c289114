"""ETTh1 and ETTh2: found in a folder or the user's cache, else downloaded; checked by SHA-256.

Source: the ETDataset of Zhou et al. 2021 (github.com/zhouhaoyi/ETDataset, licence CC BY-ND 4.0).
"""

from __future__ import annotations

import hashlib
from http.client import HTTPException
from pathlib import Path

from tuner.data.cache import user_cache
from tuner.data.remote import reason_of, transfer, url_of
from tuner.errors import DataError
from tuner.files.durable import open_plain, replacing

SHA256 = {
    "ETTh1.csv": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "ETTh2.csv": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
}
BASE_URL = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small"
_MOST_BYTES = 64 << 20
_ELSEWHERE = (
    "download ETTh1.csv and ETTh2.csv elsewhere "
    "and name their folder with --data-dir or TUNER_DATA_DIR"
)


def default_folder() -> Path:
    """Where downloaded files are kept for this user."""
    return user_cache() / "etth"


def read_etth(data_dir: Path | None, *, base_url: str = BASE_URL) -> dict[str, bytes]:
    """The content of both files by file name: from `data_dir`, the user's cache, or the network. A
    `data_dir` that is a URL is where the cache is filled from.

    Raises:
        DataError: `data_dir` lacks a file, no network, or a file whose SHA-256 is not the known
            one.
    """
    url = url_of(data_dir)
    if data_dir is None or url is not None:
        folder = fetch_etth(base_url=url.rstrip("/") if url is not None else base_url)
    else:
        folder = data_dir
    return {name: _read_checked(folder / name) for name in SHA256}


def find_etth(data_dir: Path | None) -> Path:
    """The folder of both files, checked: `data_dir`, else the user's cache. Nothing is downloaded.

    Raises:
        DataError: a file is missing, or its SHA-256 is not the known one.
    """
    folder = data_dir if data_dir is not None and url_of(data_dir) is None else default_folder()
    for name in SHA256:
        _read_checked(folder / name)
    return folder


def fetch_etth(dest: Path | None = None, *, base_url: str = BASE_URL) -> Path:
    """Download what `dest` lacks of both files (default: the user's cache), and return that folder.

    Raises:
        DataError: no network, an unwritable folder, or a file whose SHA-256 is not the known one.
    """
    folder = default_folder() if dest is None else dest
    missing = [name for name in SHA256 if not (folder / name).exists()]
    for name in SHA256:
        if name not in missing:
            _read_checked(folder / name)
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{folder}: cannot be made ({error.strerror}); name a folder that holds ETTh1.csv "
                "and ETTh2.csv with --data-dir or TUNER_DATA_DIR"
            ) from None
    for name in missing:
        _download(f"{base_url}/{name}", folder / name)
    return folder


def _read_checked(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path}: no such file; put ETTh1.csv and ETTh2.csv into this folder, name another "
            "with --data-dir or TUNER_DATA_DIR, or run 'tuner data fetch etth' and name none"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    found, expected = hashlib.sha256(content).hexdigest(), SHA256[path.name]
    if found != expected:
        raise DataError(
            f"{path}: SHA-256 is {found}, expected {expected}; "
            "the file is damaged or another version: delete it and run 'tuner data fetch etth'"
        )
    return content


def _download(url: str, path: Path) -> None:
    """Download to a temporary file beside `path`, check it, then move it into place in one step."""
    try:
        with replacing(path) as file:
            transfer(url, file, path.name, most_bytes=_MOST_BYTES)
            file.seek(0)
            found, expected = hashlib.sha256(file.read()).hexdigest(), SHA256[path.name]
            if found != expected:
                raise DataError(
                    f"{url}: what was downloaded for {path} has SHA-256 {found}, expected "
                    f"{expected}; try again, or {_ELSEWHERE}"
                )
    except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
        raise DataError(
            f"{path}: not there, and could not be downloaded from {url} ({reason_of(error)}); "
            f"{_ELSEWHERE}"
        ) from None
