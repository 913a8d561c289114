"""A program of the user's own in place of a network: what a study file's `[process]` says of it,
and what a study keeps of that.

Nothing here runs it. The command is a list of words that no shell ever reads.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tuner.config import MqlSplit
from tuner.display.text import shortened, shown
from tuner.errors import UsageError
from tuner.files.durable import file_sha256
from tuner.files.plain import Digest, Label, Strict, explained

# Files that a study's code reads, by the patterns of its study file: its weights, say, or its
# program.


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
        names = {str(path.relative_to(folder)): file_sha256(path) for path in sorted(found)}
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
            if file_sha256(path) != digest:
                return f"{path} is not the file that the study was made with: restore it"
        return ""


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
        whole, folder = hashlib.sha256(), Path(self.folder)
        for path in files:
            name = path.relative_to(folder) if path.is_relative_to(folder) else path.name
            whole.update(f"{name}\0{file_sha256(path)}\n".encode())
        return whole.hexdigest()


# Studies whose times are by other clocks than each other, or of other windows.


_COUNTS = {
    ClockLabel.TUNER: "tuner's own loop",
    ClockLabel.PROCESS: "a program's lines as they come",
    ClockLabel.LIGHTNING: "LightningReport in a program",
    ClockLabel.HUGGINGFACE: "HuggingFaceReport in a program",
}


def refuse_other_clocks(name: str, clock: ClockLabel, other: str, of_other: ClockLabel) -> None:
    """Raises UsageError where the times of two studies are by two clocks: what one counts the other
    may not.
    """
    if clock is of_other:
        return
    raise UsageError(
        f"studies {name!r} (clock {clock.value}: {_COUNTS[clock]}) and {other!r} (clock "
        f"{of_other.value}: {_COUNTS[of_other]}) count different times, which do not compare; run "
        "both by one clock (both as programs that say the same clock under [process], or both in "
        "tuner's loop), or look at each by itself"
    )


def clock_in_words(clock: ClockLabel) -> str:
    """Whose clock it was, for a reader; empty where it was tuner's."""
    return "" if clock is ClockLabel.TUNER else f"clock {clock.value}: {_COUNTS[clock]}"


# Studies that are judged on other test windows than each other.


def refuse_other_windows(name: str, split: str, other: str, of_other: str) -> None:
    """Raises UsageError where one of two studies keeps the last block of its test split, and the
    other does not: a test MQL is not the same thing in both. `split` and `of_other` are their MQL
    splits.
    """
    if (split == MqlSplit.ORIGINS) == (of_other == MqlSplit.ORIGINS):
        return
    raise UsageError(
        f"studies {name!r} (--mql-split {split}) and {other!r} (--mql-split {of_other}) are judged "
        "on different windows of the test split: their figures do not compare"
    )
