"""An exported study may be the only copy of what it holds: no other study takes its place."""

from __future__ import annotations

from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.spec.definition import StudyDefinition
from tuner.study.archive import read_archive


def refuse_another_study(path: Path, name: str, definition: StudyDefinition) -> None:
    """Refuse to write study `name` over the export of another one.

    Raises:
        UsageError: there is one, or what is there cannot be read to tell.
    """
    if not path.is_file():
        return
    try:
        there = read_archive(path)
    except TunerError as error:
        raise UsageError(
            f"{path}: is there already, and cannot be told from another study's ({error}); name "
            "another file, or say --force to write over it"
        ) from None
    if (there.name, there.definition) != (name, definition):
        raise UsageError(
            f"{path}: holds another study, {there.name!r}; name another file, or say --force to "
            "write over it"
        )
