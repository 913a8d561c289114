"""A file with a class of the user's own: where it lay when its study was made, what this host has
of it, and the private copy of what this user has run here.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.data.cache import user_cache
from tuner.errors import DataError, UsageError
from tuner.files.durable import read_regular, write_durably
from tuner.files.private_folder import PrivateFolderError, private_folder
from tuner.spec.definition import StudyDefinition
from tuner.storage.code_texts import MOST_BYTES, fits, put_source
from tuner.storage.database import Database

_FILE_NAME = re.compile(r"[\w][\w .+-]{0,120}\.py")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """Where a study's class lay when the study was made, and what its file held then."""

    path: Path
    name_of_class: str
    sha256: str

    @staticmethod
    def of(definition: StudyDefinition) -> OwnFile | None:
        """None where the network is built in, or of an installed module."""
        location, _, name = definition.architecture.model.rpartition(":")
        if not location.endswith(".py") or definition.model_source is None:
            return None
        return OwnFile(Path(location).expanduser(), name, definition.model_source)

    def here(self) -> bytes | None:
        """What lies at its path on this host; None where there is no such file."""
        try:
            return self.path.read_bytes()
        except OSError:
            return None


def keep_code(database: Database, definition: StudyDefinition) -> str | None:
    """Store the file of a definition that was made on this host, for other hosts; and note that
    this user runs it. Returns what to say of what is not carried.
    """
    own = OwnFile.of(definition)
    content = own.here() if own is not None else None
    if own is None or content is None or hashlib.sha256(content).hexdigest() != own.sha256:
        return None
    with contextlib.suppress(OSError, DataError, PrivateFolderError, UsageError):
        keep_copy(own, content)
    if not fits(content):
        return f"{own.path.name} is no UTF-8 text of at most 1 MiB: other hosts need it at its path"
    put_source(database.engine, own.path.name, content)
    return _not_carried(own, content)


def _not_carried(own: OwnFile, content: bytes) -> str | None:
    """One file is carried, not what it imports from beside it."""
    found = [name for name in _imported(content) if _lies_in(own.path.parent, name)]
    if not found:
        return None
    return (
        f"{own.path.name} imports {', '.join(found)} beside it, which other hosts do not get: they "
        "need it on Python's path, or all in one file"
    )


def path_of_copy(own: OwnFile) -> Path:
    """Where this user's own copy is, or will be.

    Raises:
        UsageError: the file has a name that none should have.
        DataError: there is no place for caches.
    """
    if not _FILE_NAME.fullmatch(own.path.name):
        raise UsageError(
            f"the file {own.path.name!r} has a name that is not carried to other hosts; copy it to "
            f"{own.path}"
        )
    return user_cache() / "code" / own.sha256 / own.path.name


def is_whole(path: Path, digest: str) -> bool:
    """Whether this user's own copy is there, as it was."""
    try:
        private_folder(path.parent.parent)
        content = read_regular(path, at_most=MOST_BYTES)
    except (OSError, ValueError):
        return False
    return hashlib.sha256(content).hexdigest() == digest


def keep_copy(own: OwnFile, content: bytes) -> Path:
    """The path of this user's own copy, which is made where it is missing or damaged.

    Raises:
        PrivateFolderError: its folder is not this user's alone.
        UsageError: it cannot be written, or has a name that none should have.
    """
    path = path_of_copy(own)
    if not is_whole(path, own.sha256):
        private_folder(private_folder(path.parent.parent) / own.sha256)
        try:
            write_durably(path, content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
    return path


def _imported(content: bytes) -> Iterator[str]:
    """First parts of what a file imports by name, each once."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= dict.fromkeys(each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found[node.module.partition(".")[0]] = None
    yield from found


def _lies_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()
