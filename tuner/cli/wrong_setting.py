"""Which value of a study file a network cannot be built with, where only its class can tell."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.config import Architecture, Hyperparameters, ModelShapes, shapes_seen
from tuner.errors import UsageError
from tuner.models.names import library_class

if TYPE_CHECKING:
    from tuner.spec.study_file import StudyFile


def with_its_place(
    error: UsageError, variant: str, file: StudyFile, shapes: ModelShapes
) -> UsageError:
    """The same error with file, line and key of the value without which the network can be built;
    as it is where no study file of the user's gave one, or something else is wrong.

    Args:
        error: what a check ended with.
        variant: as the user named it.
        file: what that is.
        shapes: of the task.
    """
    hyperparameters = file.default_hyperparameters()
    seen = shapes_seen(shapes, hyperparameters)
    arguments = _arguments(file, hyperparameters)
    if not variant.endswith(".toml") or not arguments:
        return error
    if _is_built(file.architecture(), seen, hyperparameters):
        return error
    wrong = [
        (table, name)
        for table, name in arguments
        if _is_built(*_without(table, name, file, seen, hyperparameters))
    ]
    if not wrong and library_class(file.model) is None:
        return error  # a class of one's own may be at fault itself
    from tuner.files.toml_file import read_toml

    document = read_toml(Path(variant))
    keys = wrong[0] if wrong else arguments[0][:1]
    beside = ", ".join(".".join(each) for each in wrong[1:])
    with_others = f", with {beside}" if beside else ""
    return UsageError(f"{document.where(keys)}: key '{'.'.join(keys)}'{with_others}: {error}")


def _arguments(file: StudyFile, hyperparameters: Hyperparameters) -> list[tuple[str, str]]:
    """Table and name of each value that the network is built with."""
    from tuner.models.registry import network_arguments

    settings = [("model_settings", name) for name in file.model_settings]
    return settings + [("defaults", name) for name in network_arguments(hyperparameters)]


def _without(
    table: str, name: str, file: StudyFile, shapes: ModelShapes, hyperparameters: Hyperparameters
) -> tuple[Architecture, ModelShapes, Hyperparameters]:
    architecture, changes = file.architecture(), dict[str, Any]()
    if table == "model_settings":
        rest = {key: value for key, value in architecture.settings.items() if key != name}
        architecture = Architecture(model=architecture.model, settings=rest)
    elif name in ("hidden_size", "dropout"):
        changes[name] = None
    else:
        changes["own"] = {k: v for k, v in hyperparameters.own.items() if k != name}
    return architecture, shapes, dataclasses.replace(hyperparameters, **changes)


def _is_built(
    architecture: Architecture, shapes: ModelShapes, hyperparameters: Hyperparameters
) -> bool:
    from tuner.models.fault import FAULTS
    from tuner.training.one_step import build_within_memory

    try:
        build_within_memory(architecture, hyperparameters, shapes)
    except FAULTS:
        return False
    return True
