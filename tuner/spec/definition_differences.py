"""What differs between a study's stored definition and one that is asked for, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.spec.definition import StudyDefinition, without_folder


def differences(stored: StudyDefinition, asked: StudyDefinition) -> list[str]:
    """What differs between two definitions, one phrase each, e.g. `training.max_epochs: 200 there,
    3 asked`.
    """
    there, here = _flat(stored.comparable()), _flat(asked.comparable())
    phrases = []
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) == here.get(key):
            continue
        name = key.removeprefix("training.")
        if name in asked.of_training and name not in stored.of_training:
            phrases.append(
                f"{name}: an argument of its network there, asked as a setting of training, which "
                "it is by now; give the argument another name"
            )
        elif key == "model_source" and same_class(stored, asked):
            phrases.append(f"{class_file(asked)} changed since the study was made")
        elif key == "loss_source" and _same_term(stored, asked):
            phrases.append(f"{_term_file(asked)} changed since the study was made")
        elif key.startswith("files.") and key in there and key in here:
            phrases.append(f"{key.removeprefix('files.')} changed since the study was made")
        else:
            phrases.append(
                f"{key}: {there.get(key, 'absent')} there, {here.get(key, 'absent')} asked"
            )
    return phrases


def changed_files(stored: StudyDefinition, asked: StudyDefinition) -> tuple[str, ...]:
    """The user's files that both run and that are not what they were."""
    found: dict[str, None] = {}
    if stored.model_source != asked.model_source and same_class(stored, asked):
        found[class_file(asked)] = None
    if stored.loss_source != asked.loss_source and _same_term(stored, asked):
        found[_term_file(asked)] = None
    before = {} if stored.files is None else stored.files.sha256
    for name, digest in ({} if asked.files is None else asked.files.sha256).items():
        if before.get(name, digest) != digest:
            found[name] = None
    return tuple(found)


def same_class(stored: StudyDefinition, asked: StudyDefinition) -> bool:
    """Whether both are about the class of one file of the user's own, whatever stands in it."""
    names = {without_folder(each.architecture.model) for each in (stored, asked)}
    return len(names) == 1 and None not in (stored.model_source, asked.model_source)


def class_file(definition: StudyDefinition) -> str:
    """The file that an import string names, relative to the current folder where it lies in it."""
    if definition.program is not None:
        return "the program of [process]"
    return _near(definition.architecture.model)


def _same_term(stored: StudyDefinition, asked: StudyDefinition) -> bool:
    """Whether both add the term of one file of the user's own, whatever stands in it."""
    names = {
        each.training.loss and without_folder(each.training.loss.term) for each in (stored, asked)
    }
    return len(names) == 1 and None not in (stored.loss_source, asked.loss_source)


def _term_file(definition: StudyDefinition) -> str:
    """The file with the term of the training loss, as `class_file`."""
    assert definition.training.loss is not None, "it has one"
    return _near(definition.training.loss.term)


def _near(reference: str) -> str:
    path = Path(reference.rpartition(":")[0])
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        k: v
        for key, inner in value.items()
        for k, v in _flat(inner, f"{prefix}.{key}" if prefix else key).items()
    }
