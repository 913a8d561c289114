"""What a study's own row says it is, read; what cannot be read is said with its study."""

from __future__ import annotations

from typing import Any

from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, explained
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import ATTRIBUTE, Membership


def stored_definition(name: str, text: str) -> StudyDefinition:
    """Raises StorageError where it is another version's, or damaged."""
    try:
        return StudyDefinition.from_json(text)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({explained(error)}): it was "
            "made by another version of tuner, or is damaged; use that version, restore a backup, "
            "or start another study with --study NAME"
        ) from None


def stored_membership(name: str, stored: Any) -> Membership:
    """Raises StorageError where it is another program's, or damaged."""
    try:
        return Membership.model_validate(stored, strict=True)
    except UNREADABLE as error:
        raise StorageError(
            f"the stored definition of study {name!r} cannot be read ({ATTRIBUTE}: "
            f"{explained(error)}): which search of which group it is was written by another "
            "program, or is damaged; restore a backup, or start another study with --study NAME"
        ) from None
