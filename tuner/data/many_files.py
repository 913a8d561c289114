"""Many files of one source: each is a run of time by itself, and all together are one series.

Such are the folders of a simulation, or of a machine that was switched on and off: a window lies in
one file, and all files have one scale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tuner.data.series import Series
from tuner.data.source_kinds import WILDCARDS, FileSource
from tuner.errors import DataError

MOST_FILES = 100_000
_WILD = frozenset(WILDCARDS)


def files_of(source: FileSource, folder: Path | None) -> dict[str, Path]:
    """The files that a source's pattern finds, by their names from its first wildcard on, in the
    order of these: what they are called does not depend on where they lie.

    Args:
        source: whose path is a pattern.
        folder: where they are looked for if the pattern finds none at its own place.

    Raises:
        DataError: it finds nothing, or too many, or a folder that cannot be read.
    """
    root, pattern = _parts(source.path)
    found = dict(_found(root, pattern))
    if not found and folder is not None:
        found = dict(_found(folder, pattern))
    if not found:
        beside = f", nor in {folder}" if folder is not None else ""
        raise DataError(
            f"{source.path}: the pattern finds no file in {root}{beside}; correct 'path' under "
            "[source] in the task file"
        )
    if len(found) > MOST_FILES:
        raise DataError(
            f"{source.path}: the pattern finds {len(found):,} files, at most {MOST_FILES:,} are "
            "read; make it narrower"
        )
    return dict(sorted(found.items()))


def in_order_of_splits(runs: tuple[Series, ...]) -> tuple[Series, ...]:
    """The files as they are dealt to training, validation and test: in the order of a hash of their
    names, so that a parameter that grows along with the names is in each split.
    """
    return tuple(sorted(runs, key=lambda run: hashlib.sha256(run.name.encode()).digest()))


def _parts(path: Path) -> tuple[Path, str]:
    """The folder before the first wildcard, and the pattern from there."""
    first = next(n for n, part in enumerate(path.parts) if _WILD & set(part))
    return Path(*path.parts[:first]), "/".join(path.parts[first:]).replace("[", "[[]")


def _found(root: Path, pattern: str) -> Iterator[tuple[str, Path]]:
    try:
        for path in root.glob(pattern):
            if path.is_file():
                yield path.relative_to(root).as_posix(), path
    except OSError as error:
        raise DataError(f"{root}: cannot be read ({error.strerror})") from None
