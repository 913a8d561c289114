"""The user's own code that a study runs, a file or a program, as this host has it: the copy that
this user has run or trusted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.config import names_file
from tuner.errors import DataError, UsageError
from tuner.files.durable import open_plain, read_regular, write_durably
from tuner.files.environment import PrivateFolderError, private_folder, user_cache
from tuner.models.own_modules import files_beside, imported_names, lies_in
from tuner.spec.definition import StudyDefinition
from tuner.spec.program import Program
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.schema import sources

# Files with networks of users' own, as text and by hash. Nothing here runs them.


MOST_BYTES = 1 << 20
"""Of one file."""


def fits(content: bytes) -> bool:
    """Whether a database takes it as text: UTF-8, and not too long."""
    if len(content) > MOST_BYTES or b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def put_source(engine: Engine, name: str, content: bytes) -> str:
    """Keep a file that `fits`, once; its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    try:
        with engine.begin() as connection:
            there = select(sources.c.sha256).where(sources.c.sha256 == digest)
            if connection.execute(there).first() is None:
                row = {"sha256": digest, "name": name[:200], "content": content.decode()}
                connection.execute(insert(sources).values(**row, created_at=database_now()))
    except IntegrityError:  # somebody else was faster
        pass
    return digest


def source_of(engine: Engine, digest: str) -> bytes | None:
    """The file of this SHA-256; None where there is none, or where what is there is another: a
    database's content is a stranger's.
    """
    with engine.connect() as connection:
        query = select(sources.c.content).where(sources.c.sha256 == digest)
        found = connection.execute(query).scalar_one_or_none()
    if not isinstance(found, str):
        return None
    content = found.encode(errors="replace")
    return content if hashlib.sha256(content).hexdigest() == digest else None


# What a study of a program runs on a host, as one text with a hash, and whether this user trusts
# it there.


NAME = "program.json"


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A command, the folder in which it runs, and the hash of its files."""

    program: Program
    files_sha256: str | None

    @staticmethod
    def of(definition: StudyDefinition) -> OwnProgram | None:
        """None where the study trains a network."""
        if definition.program is None:
            return None
        return OwnProgram(definition.program, definition.model_source)

    @staticmethod
    def here(program: Program) -> OwnProgram:
        """With its files as they lie here. Raises UsageError where one cannot be read."""
        return OwnProgram(program, program.digest())

    @property
    def path(self) -> Path:
        """Where it runs."""
        return Path(self.program.folder)

    @property
    def content(self) -> bytes:
        """All that is trusted with it: a document of JSON, the same wherever it is written."""
        said = {
            "command": list(self.program.command),
            "files_sha256": self.files_sha256,
            "folder": self.program.folder,
        }
        return (json.dumps(said, indent=1, sort_keys=True) + "\n").encode()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def copy(self) -> Path:
        """As `OwnFile.copy`."""
        return _place(self.sha256, NAME)


def programs_of(definitions: Iterable[StudyDefinition]) -> tuple[str, ...]:
    """The hashes of the programs that these studies run, each once."""
    found = (OwnProgram.of(each) for each in definitions)
    return tuple(dict.fromkeys(each.sha256 for each in found if each is not None))


_FILE_NAME = re.compile(r"[\w][\w .+-]{0,120}\.py")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """Where code of a study lay when the study was made, and what its file held then."""

    path: Path
    sha256: str

    @staticmethod
    def all_of(definition: StudyDefinition) -> tuple[OwnFile, ...]:
        """Those of the network and of the loss's term, each once; none where these are built in, or
        of an installed module.
        """
        loss = definition.training.loss
        named = [(definition.architecture.model, definition.model_source)]
        if loss is not None:
            named.append((loss.term, definition.loss_source))
        found = [OwnFile.named(reference, sha256) for reference, sha256 in named]
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @staticmethod
    def named(reference: str, sha256: str | None) -> OwnFile | None:
        """The file of an import string; None where it names none."""
        if not names_file(reference) or sha256 is None:
            return None
        return OwnFile(Path(reference.rpartition(":")[0]).expanduser(), sha256)

    @property
    def copy(self) -> Path:
        """Where this user's own copy is, or will be.

        Raises:
            UsageError: the file has a name that none should have.
            DataError: there is no place for caches.
        """
        if not _FILE_NAME.fullmatch(self.path.name):
            raise UsageError(
                f"the file {self.path.name!r} has a name that is not carried to other hosts; copy "
                f"it to {self.path}"
            )
        return _place(self.sha256, self.path.name)

    def here(self) -> bytes | None:
        """What lies at its path on this host; None where there is no such file."""
        try:
            with open_plain(self.path) as file:
                return file.read()
        except OSError:
            return None

    def as_it_was(self) -> bytes | None:
        """The same, where it is what the study was made with."""
        content = self.here()
        unchanged = content is not None and hashlib.sha256(content).hexdigest() == self.sha256
        return content if unchanged else None


# What this user has run or trusted on this host, by its hash, in a folder of the user's alone.


def _place(sha256: str, name: str) -> Path:
    return user_cache() / "code" / sha256 / name


def is_kept(own: OwnFile | OwnProgram) -> bool:
    """Whether this user's own copy is there, as it was.

    Raises:
        PrivateFolderError: others could have written it.
        UsageError, DataError: as `OwnFile.copy`.
    """
    path = own.copy
    if not path.exists():
        return False
    try:
        private_folder(path.parent.parent)
        content = read_regular(path, at_most=MOST_BYTES)
    except (OSError, ValueError):
        return False
    return hashlib.sha256(content).hexdigest() == own.sha256


def keep(own: OwnFile | OwnProgram, content: bytes) -> None:
    """Make this user's own copy where it is missing or damaged.

    Raises:
        PrivateFolderError: its folder is not this user's alone.
        UsageError: it cannot be written, or has a name that none should have.
        DataError: there is no place for caches.
    """
    if is_kept(own):
        return
    path = own.copy
    private_folder(private_folder(path.parent.parent) / own.sha256)
    try:
        write_durably(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def keep_if_possible(own: OwnFile | OwnProgram, content: bytes) -> None:
    """The same where there is a place for it."""
    with contextlib.suppress(OSError, DataError, PrivateFolderError, UsageError):
        keep(own, content)


def keep_code(database: Database, definition: StudyDefinition) -> tuple[str, ...]:
    """Store the files of a definition that was made on this host, for other hosts; and note that
    this user runs them, or the program. Returns what to say of what is not carried.
    """
    if (program := OwnProgram.of(definition)) is not None:
        keep_if_possible(program, program.content)
    lines = []
    for own in OwnFile.all_of(definition):
        if (content := own.as_it_was()) is None:
            continue
        keep_if_possible(own, content)
        name = own.path.name
        if not fits(content):
            lines.append(
                f"{name} is no UTF-8 text of at most 1 MiB: other hosts need it at its path"
            )
            continue
        put_source(database.engine, name, content)
        # One file is carried, not what it imports from beside it.
        if beside := [n for n in imported_names(content) if lies_in(own.path.parent, n)]:
            lines.append(
                f"{name} imports {', '.join(beside)} beside it, which other hosts do not get: they "
                "need it on Python's path, or all in one file"
            )
    return tuple(lines)


def beside_all(definition: StudyDefinition) -> dict[str, dict[str, str]]:
    """What the files of a definition import from beside them on this host, by the name of each: the
    SHA-256 of every file. Only of files that are as the definition has them.
    """
    found = {}
    for own in OwnFile.all_of(definition):
        if own.as_it_was() is not None and (files := files_beside(own.path)):
            found[own.path.name] = files
    return found
