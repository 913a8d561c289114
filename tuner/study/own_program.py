"""What a study of a program runs on a host, as one text with a hash, and whether this user trusts
it there.

A command line that comes from a database is a stranger's, whichever files lie where it runs: these
may be this host's own, and the words around them another's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import DataError, UsageError
from tuner.files.private_folder import PrivateFolderError
from tuner.spec.definition import StudyDefinition
from tuner.spec.program import Program
from tuner.study.kept_copies import is_whole, keep_at, path_of

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

    def is_known(self) -> bool:
        """Whether this user launched or trusted it on this host.

        Raises:
            PrivateFolderError: others could have written that.
        """
        try:
            path = path_of(self.sha256, NAME)
        except DataError:
            return False
        return path.exists() and is_whole(path, self.sha256)

    def keep(self) -> None:
        """Trust it from now on, where there is a place to note that."""
        with contextlib.suppress(OSError, DataError, PrivateFolderError, UsageError):
            keep_at(path_of(self.sha256, NAME), self.sha256, self.content)


def programs_of(definitions: Iterable[StudyDefinition]) -> tuple[str, ...]:
    """The hashes of the programs that these studies run, each once."""
    found = (OwnProgram.of(each) for each in definitions)
    return tuple(dict.fromkeys(each.sha256 for each in found if each is not None))
