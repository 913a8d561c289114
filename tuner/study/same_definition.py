"""Refusing to go on with a study that means something else: another definition, or another network
in the files that its class imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.display.text import shown
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, changed_files, differences
from tuner.study.own_file import beside_all

BESIDE = "tuner_imported_beside"
"""What a study's own files import from beside them: the SHA-256 of each, as it was when the study
was made. It is no part of the definition: a study of before would be another one by it."""


def refuse_if_different(
    name: str,
    stored: StudyDefinition,
    asked: StudyDefinition,
    attributes: Callable[[], Mapping[str, Any]],
) -> None:
    """Raises UsageError where the study `name`, with these `attributes`, is of another definition
    than asked for, or where a file that its class imports is no longer as it was.
    """
    if stored.identity() != asked.identity():
        raise UsageError(_other_definition(name, stored, asked))
    if here := beside_all(asked):
        refuse_changed_beside(name, attributes().get(BESIDE), here)


def refuse_changed_beside(name: str, stored: object, here: Mapping[str, Mapping[str, str]]) -> None:
    """Raises UsageError where a file that a class of the study `name` imports from beside it is not
    `here` what is `stored` of it.
    """
    if changed := _changed(stored, here):
        raise UsageError(
            f"study {name!r} was made when {' and '.join(changed)}, and its trials would not "
            "compare. Restore that, or start a new study with --study NAME"
        )


def _other_definition(name: str, stored: StudyDefinition, asked: StudyDefinition) -> str:
    what = differences(stored, asked)
    restore = "Ask for the old definition"
    if changed := changed_files(stored, asked):
        restore = (
            f"Restore {' and '.join(changed)} as {'it was' if len(changed) == 1 else 'they were'}"
        )
        if len(what) > len(changed):
            restore += " and ask for the old definition"
    return (
        f"study {name!r} was made with another definition and its trials would not compare: "
        f"{'; '.join(what) or 'its stored form'}. {restore}, or start a new study with --study NAME"
    )


def _changed(stored: object, here: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Which files were something else, each with who imports it. What is stored may be anything:
    nothing follows from what it is not.
    """
    if not isinstance(stored, dict):
        return []
    found = []
    for importing, files in here.items():
        before = stored.get(importing)
        if not isinstance(before, dict):
            continue
        for name, digest in files.items():
            if before.get(name, digest) != digest:
                found.append(f"{shown(name)}, which {importing} imports, was another file")
    return found
