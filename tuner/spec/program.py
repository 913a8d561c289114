"""A program of the user's own in place of a network: what a study file's `[process]` says of it,
and what a study keeps of that.

Nothing here runs it. The command is a list of words that no shell ever reads.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tuner.display.text import shortened, shown
from tuner.errors import UsageError
from tuner.files.plain import Label, Strict
from tuner.spec.named_files import MOST_FILES, Patterns, digest_of, matching

MODEL = "process"
"""What the architecture of such a study is called."""
MOST_WORDS = 1000
SHOWN = 200
"""Characters of a command, in a line of ours."""


class ClockLabel(StrEnum):
    """Whose clock a study's times are by. No figure and no verdict mixes two of them."""

    TUNER = "tuner"
    """tuner's own loop."""
    PROCESS = "process"
    """A program's lines, timed as they arrive."""
    LIGHTNING = "lightning"
    """`tuner.callbacks.LightningReport`, inside the program."""
    HUGGINGFACE = "huggingface"
    """`tuner.callbacks.HuggingFaceReport`, inside the program."""


def _word(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a zero byte, which no argument of a program can")
    return text


Word = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_word)]


class ProgramTable(Strict):
    """The table `[process]` of a study file."""

    command: Annotated[tuple[Word, ...], Field(min_length=1, max_length=MOST_WORDS)]
    """The program and its arguments. It runs in the folder of the study file."""
    clock: Literal["process", "lightning", "huggingface"] = "process"
    files: Patterns = ()
    """Patterns beneath that folder, such as `src/**/*.py`: with the files that the command names,
    these are the program, which must not change while its trials are compared."""
    silence_s: Annotated[float, Field(gt=0, le=1e7)] = 1800.0
    """Without a line for so long, it hangs and is ended."""


class Program(ProgramTable):
    """What a study keeps of it."""

    folder: Label
    """Where the study file lay."""

    @staticmethod
    def of(table: ProgramTable, folder: Path) -> Program:
        """The program of a study file in this folder."""
        return Program(
            **table.model_dump(),
            folder=str(folder),
        )

    @property
    def label(self) -> ClockLabel:
        return ClockLabel(self.clock)

    def comparable(self) -> dict[str, object]:
        """What identifies it: not the folder that it happens to lie in."""
        return self.model_dump(mode="json", exclude={"folder"})

    def in_words(self) -> str:
        """The command as a person reads it, without the middle of a long one, and where it runs."""
        return f"{shortened(shlex.join(self.command), SHOWN)} in {shown(self.folder)}"

    def check(self) -> None:
        """See that it could be started here, and starts nothing.

        Raises:
            UsageError: there is no such program, or a file of it cannot be read.
        """
        first = self.command[0]
        found = Path(self.folder) / first if "/" in first else shutil.which(first)
        # Not Path.is_file, as below.
        if found is None or not (os.path.isfile(found) and os.access(found, os.X_OK)):  # noqa: PTH113
            raise UsageError(
                f"[process] command: {shown(first)} is no program here; expected one on PATH, or a "
                "path from the folder of the study file to a file that may be executed"
            )
        self.digest()

    def own_files(self) -> tuple[Path, ...]:
        """The files that are the program, in the order of their names.

        Raises:
            UsageError: a pattern that finds nothing or leaves the folder, or too many files.
        """
        folder = Path(self.folder)
        # Not Path.is_file, which raises where a word is too long for a name.
        found = {folder / word for word in self.command if os.path.isfile(folder / word)}  # noqa: PTH113
        for pattern in self.files:
            found |= set(matching(folder, pattern, key="[process] files"))
        if len(found) > MOST_FILES:
            raise UsageError(
                f"[process] files: {len(found)} files are the program; expected at most "
                f"{MOST_FILES}: name its code, not its data"
            )
        return tuple(sorted(found))

    def digest(self) -> str | None:
        """SHA-256 of the program's files, with their names; None where the command names none.

        Raises:
            UsageError: one of them cannot be read.
        """
        files = self.own_files()
        if not files:
            return None
        whole = hashlib.sha256()
        for path in files:
            whole.update(f"{_within(path, Path(self.folder))}\0{digest_of(path)}\n".encode())
        return whole.hexdigest()


def _within(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name
