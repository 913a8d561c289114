"""A study in one file: compact, versioned JSON
with everything that was found, to read without a database.

It holds the study's definition and policy, its trials with their values and attributes, their
learning curves (to seven significant digits, what fp32 has) and the verification runs that ended.
Names ending in `.gz` are compressed; the same study gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

from tuner.errors import StorageError, UsageError
from tuner.files.durable import open_plain, put
from tuner.files.plain import UNREADABLE, excerpt, explained, read_json
from tuner.study.archive.content import Archive
from tuner.study.archive.json_form import FORMAT, VERSION, as_dict, from_dict, from_json

ENDINGS = (".json", ".json.gz")
AT_MOST_BYTES = 64 << 20
"""Of JSON in an exported study: some ten thousand trials with their curves."""


def write_archive(archive: Archive, path: Path) -> None:
    """Write `archive` to `path`, compressed where its name ends in `.gz`.

    Raises:
        UsageError: the name has another ending than `.json` or `.json.gz`, or the study is too
            large to be read again.
        OSError: the file cannot be written; what was there before stays.
    """
    if not is_archive_name(str(path)):
        raise UsageError(
            f"{path}: an exported study is a .json or .json.gz file; choose such a name"
        )
    text = json.dumps(as_dict(archive), separators=(",", ":"), allow_nan=False).encode()
    if len(text) > AT_MOST_BYTES:
        raise UsageError(
            f"study {archive.name!r} comes to more than {AT_MOST_BYTES >> 20} MiB of JSON, which "
            "no tuner would read; "
            "copy its database instead"
        )
    put(path, gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)


def read_archive(path: Path) -> Archive:
    """The study that `write_archive` wrote to `path`.

    Raises:
        UsageError: no such file, no exported study, or one of a newer tuner.
    """
    try:
        text = _text(path)
        data = read_json(text)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}; 'tuner study export NAME --output FILE' writes one"
        ) from None
    except (gzip.BadGzipFile, EOFError, ValueError, zlib.error) as error:
        raise UsageError(
            f"{path} is no exported study: {explained(error)}; copy it again, or write it anew "
            "with 'tuner study export NAME --output FILE'"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read as an exported study: {error.strerror or error}"
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(
            f"{path} is no exported study; 'tuner study export NAME --output FILE' writes one"
        )
    if data.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {excerpt(repr(data.get('version')))} of the format, this tuner "
            f"reads {VERSION}; "
            "use the tuner that wrote it, or a newer one"
        )
    try:
        return from_json(text) if json.detect_encoding(text) == "utf-8" else from_dict(data)
    except (*UNREADABLE, StorageError) as error:
        raise UsageError(f"{path} is damaged: {explained(error)}; export the study again") from None


def is_archive_name(name: str) -> bool:
    """True for what `write_archive` takes as a file's name."""
    return name.endswith(ENDINGS)


def _text(path: Path) -> bytes:
    """The file's text, inflated where it is compressed, up to `AT_MOST_BYTES` of it."""
    with open_plain(path) as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if compressed:
            with gzip.GzipFile(fileobj=file) as inflated:
                text = inflated.read(AT_MOST_BYTES + 1)
        else:
            text = file.read(AT_MOST_BYTES + 1)
    if len(text) > AT_MOST_BYTES:
        raise ValueError(f"it holds more than {AT_MOST_BYTES >> 20} MiB of JSON")
    return text
