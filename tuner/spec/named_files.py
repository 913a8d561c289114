"""Files that a study's code reads, by the patterns of its study file: its weights, say, or its
program.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tuner.errors import UsageError
from tuner.files.plain import Digest, Label, Strict, explained

MOST_FILES = 10_000
MOST_PATTERNS = 1000
Patterns = Annotated[tuple[Label, ...], Field(max_length=MOST_PATTERNS)]


class NamedFiles(Strict):
    """What a network reads beside its class: no host gets these files from the database."""

    folder: Label
    """Where the study file lay."""
    sha256: Annotated[dict[Label, Digest], Field(min_length=1, max_length=MOST_FILES)]
    """Of each file, by its place below that folder."""

    @staticmethod
    def of(patterns: Sequence[str], folder: Path) -> NamedFiles:
        """As they lie here.

        Raises:
            UsageError: a pattern that finds nothing or leaves the folder, a file that cannot be
                read, or has a name that cannot be stored, or too many files.
        """
        found = {path for each in patterns for path in matching(folder, each, key="files")}
        names = {str(path.relative_to(folder)): digest_of(path) for path in sorted(found)}
        try:
            return NamedFiles(folder=str(folder), sha256=names)
        except ValueError as error:
            raise UsageError(f"files: {explained(error)}") from None

    def problem(self) -> str:
        """Which file here is not what the study was made with, and what to do; empty where all are.

        Raises:
            UsageError: one cannot be read.
        """
        for name, digest in self.sha256.items():
            path = Path(self.folder) / name
            if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a long name
                return f"{path} is not on this host, and no database carries it: copy it there"
            if digest_of(path) != digest:
                return f"{path} is not the file that the study was made with: restore it"
        return ""


def digest_of(path: Path) -> str:
    """SHA-256 of what a file holds, read once as long as it is the same file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        seen = path.stat()
        return _digest(path, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


@functools.lru_cache(maxsize=MOST_FILES)
def _digest(path: Path, *_as_it_is: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def matching(folder: Path, pattern: str, *, key: str) -> Iterator[Path]:
    """The files below a folder that a pattern of a study file's `key` finds.

    Raises:
        UsageError: it finds none, leaves the folder, or is no pattern.
    """
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(
            f"{key}: {pattern!r} leaves the folder of the study file; name what lies in it"
        )
    try:
        found = [path for path in folder.glob(pattern) if path.is_file()]
    except OSError as error:
        raise UsageError(f"{key}: {pattern!r} in {folder}: {error.strerror}") from None
    except (ValueError, IndexError, NotImplementedError):  # Python's own refusals of a pattern
        raise UsageError(
            f"{key}: {pattern!r} is no pattern; expected one such as 'src/**/*.py'"
        ) from None
    if not found:
        more = "; '**/*' finds all in its folders" if pattern.endswith("**") else ""
        raise UsageError(f"{key}: {pattern!r} finds no file in {folder}{more}")
    yield from found
