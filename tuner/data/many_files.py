"""Many files of one source: each is a run of time by itself, and all together are one series.

Such are the folders of a simulation, or of a machine that was switched on and off: a window lies in
one file, and all files have one scale.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tuner.data.series import Series
from tuner.data.source_kinds import FileSource
from tuner.data.wildcards import files_found
from tuner.errors import DataError

MOST_FILES = 100_000

_log = logging.getLogger(__name__)


def files_of(source: FileSource, folder: Path | None) -> dict[str, Path]:
    """The files that a source's pattern finds, by their names from its first wildcard on, in the
    order of these: what they are called does not depend on where they lie.

    Args:
        source: whose path is a pattern.
        folder: where they are looked for if the pattern finds none at its own place.

    Raises:
        DataError: it finds nothing, or too many, a folder that cannot be read, or no file.
    """
    root, parts = source.pattern()
    found = _named(source, root, parts)
    if not found and folder is not None:
        found = _named(source, folder, parts)
        if found:
            _log.warning("%s finds nothing in its place; taken from %s", source.path, folder)
    if not found:
        beside = f", nor in {folder}" if folder is not None else ""
        raise DataError(
            f"{source.path}: the pattern finds no file in {root}{beside}; correct 'path' under "
            "[source] in the task file"
        )
    if len(found) > MOST_FILES:
        raise DataError(
            f"{source.path}: the pattern finds more than {MOST_FILES:,} files; make it narrower"
        )
    return dict(sorted(found.items()))


def in_order_of_splits(runs: tuple[Series, ...]) -> tuple[Series, ...]:
    """The files as they are dealt to training, validation and test: in the order of a hash of their
    names, so that a parameter that grows along with the names is in each split.
    """
    return tuple(sorted(runs, key=lambda run: hashlib.sha256(run.name.encode()).digest()))


def twins(runs: Sequence[Series]) -> tuple[str, str] | None:
    """The names of two that hold the same values, such as a copy and what it is of: dealt to two
    splits, one would be trained on and the other forecast. None where all differ.
    """
    seen: dict[bytes, str] = {}
    for run in runs:
        key = hashlib.sha256(run.values.tobytes()).digest()
        if key in seen:
            return seen[key], run.name
        seen[key] = run.name
    return None


def _named(source: FileSource, root: Path, parts: Sequence[str]) -> dict[str, Path]:
    try:
        found = islice(files_found(root, parts), MOST_FILES + 1)
        return {path.relative_to(root).as_posix(): path for path in found}
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror}), and the pattern {source.path} "
            "looks there; let it be read, or make the pattern narrower"
        ) from None
    except ValueError as error:
        raise DataError(f"{source.path}: {error}") from None
