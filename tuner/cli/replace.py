"""One rule for files that a command writes where it was told to: only what the command itself wrote
is written over.

A file of the same name that is anything else is refused before any work is done, unless `--force`
is given.
"""

from __future__ import annotations

import csv
import hashlib
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tuner.errors import UsageError
from tuner.files.durable import MARK
from tuner.files.plain import UNREADABLE, read_json

Force = Annotated[
    bool, typer.Option("--force", help="Write over files that this command did not write.")
]

HEAD_BYTES = 65_536
TAIL_BYTES = 64
ARCHIVE_KEYS = (b'"format"', b'"definition"')
TABLES_START = (["study", "variant", "core_change"], ["kind", "before", "after"])
PAGE_STARTS = b"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>"
PROFILE_STARTS = b'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><!-- a profile -->'
TRACE_HOLDS = b'"schemaVersion"'
BENCH_FILES = ("results.csv", "results.md")


def check_free(path: Path, is_ours: Callable[[Path], bool], *, force: bool) -> None:
    """Refuse to write over what another command, or a person, wrote.

    Raises:
        UsageError: there is such a file, or the name means no file elsewhere.
    """
    if str(path) == "-":
        raise UsageError("-: is the standard output elsewhere, and no name here; name a file")
    if force or not path.exists():
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file")
    if not path.is_file():  # a pipe, of which nothing is lost; to read from it might last for ever
        return
    try:
        ours = is_ours(path)
    except (OSError, *UNREADABLE):  # or not of the form that ours have
        ours = False
    if not ours:
        raise UsageError(
            f"{path}: is there already, and was not written by this command; name another file, or "
            "say --force to "
            "write over it"
        )


def check_placeable(path: Path) -> None:
    """Refuse a file whose folder is not there and cannot be made, before what takes hours.

    Raises:
        UsageError: nothing can be written there.
    """
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir():
        raise UsageError(f"{path}: {folder} is a file, no folder; name another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: the folder {folder} cannot be written to; name another place")


def check_files(
    files: Mapping[str, tuple[Path | None, Callable[[Path], bool]]], *, force: bool
) -> None:
    """Both for the files of a command, by their flags, of which no two may name the same.

    Raises:
        UsageError: one cannot be written, is there already, or is named twice.
    """
    named: dict[Path, str] = {}
    for flag, (path, is_ours) in files.items():
        if path is None:
            continue
        check_placeable(path)
        check_free(path, is_ours, force=force)
        other = named.setdefault(path.resolve(), flag)
        if other != flag:
            raise UsageError(f"{other} and {flag} both name {path}; name two files")


def is_figure(path: Path) -> bool:
    """A picture or page that `tuner plot` or `tuner predict` drew."""
    return MARK in _head(path) or MARK in _tail(path)


def is_table(path: Path) -> bool:
    """What `tuner compare --csv` writes."""
    return _first_row(path)[:3] in TABLES_START


def is_forecast(path: Path) -> bool:
    """What `tuner predict --output` writes: two names, then `column`, then quantile levels."""
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        columns = list(pq.read_schema(path).names)
    else:
        columns = _first_row(path)
    names, levels = columns[:3], [float(level) for level in columns[3:]]
    return names[2:] == ["column"] and bool(levels) and all(0 < level < 1 for level in levels)


def is_configuration(path: Path) -> bool:
    """What `tuner best --output` writes: every form names the definition of its study."""
    head = _head(path)
    return b", study definition " in head or b'"definition_hash"' in head


def is_page(path: Path) -> bool:
    """What `tuner compare --html` writes."""
    return _head(path).startswith(PAGE_STARTS)


def is_profile_page(path: Path) -> bool:
    """What `tuner profile --html` writes."""
    return _head(path).startswith(PROFILE_STARTS)


def is_trace(path: Path) -> bool:
    """What `tuner profile --trace` writes, by torch.profiler."""
    return TRACE_HOLDS in _head(path)


def is_exported_study(path: Path) -> bool:
    """What `tuner study export` writes."""
    head = _head(path)
    if head[:2] == b"\x1f\x8b":
        try:
            head = zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        except zlib.error:
            return False
    return head.startswith(b"{") and all(key in head for key in ARCHIVE_KEYS)


def is_card(path: Path) -> bool:
    """The card that `tuner train` writes beside a model."""
    card = read_json(path.read_bytes())
    return str(card.get("written_by", "")).startswith("tuner ") and "weights_sha256" in card


def is_model(path: Path) -> bool:
    """A model whose card lies beside it."""
    card = path.with_suffix(".json")
    if not card.is_file() or not is_card(card):
        return False
    found = read_json(card.read_bytes())
    return bool(found["weights_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest())


def check_model_free(path: Path, *, force: bool) -> None:
    """The same for the two files of `tuner train`."""
    check_free(path, is_model, force=force)
    check_free(path.with_suffix(".json"), is_card, force=force)


def check_bench_free(folder: Path, columns: Sequence[str], *, force: bool) -> None:
    """The same for the two files of `tuner bench`, of which the table begins with `columns`."""

    def is_ours(_: Path) -> bool:
        return _first_row(folder / BENCH_FILES[0])[: len(columns)] == list(columns)

    for name in BENCH_FILES:
        check_free(folder / name, is_ours, force=force)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read()


def _first_row(path: Path) -> list[str]:
    lines = _head(path).decode("utf-8", errors="replace").splitlines()
    return next(csv.reader(lines[:1]), [])
