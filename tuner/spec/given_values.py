"""What a study file gives a value that belongs elsewhere, or that its network does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tuner.config import BUILT_IN, OF_THE_TASK, OF_TRAINING
from tuner.errors import UsageError, guess, unknown_name
from tuner.models.names import LIBRARY, library_class
from tuner.models.of_neuralforecast.library_source import (
    check_names,
    constructor_arguments,
    list_in,
    model_names,
    take_our_norm,
)

if TYPE_CHECKING:
    from tuner.spec.study_file import StudyFile


def misplaced(file: StudyFile) -> str | None:
    """The first value that is not taken where it stands, as `KEY: problem`; None where all are."""
    for name in file.space.ranges:
        if name in file.model_settings:
            if name in BUILT_IN and file.space.ranges[name].single:
                rule = f"{name} is the study's; a fixed one belongs in [defaults]"
            else:
                rule = f"{name} is searched; leave it out, or [space.{name}]"
            return f"model_settings.{name}: {rule}"
    if problem := _of_library(file):
        return problem
    for name, value in file.defaults.own.items():
        if name not in file.space.own:
            return f"defaults.{name}: there is no [space.{name}]{_place(file, name, value)}"
    return None


def _place(file: StudyFile, name: str, value: Any) -> str:
    """Where a value without a range belongs."""
    if file.program is not None:
        near = guess(name, file.space.ranges)
        return f"{near}; what a program always gets belongs in the command of [process]"
    if name in OF_THE_TASK:
        return (
            f'; the task says it: leave it out, or add [space.{name}] with type = "int", '
            f"low = {value} and high = {value}, which fixes it"
        )
    if name in OF_TRAINING:
        return "; a fixed one belongs in [training]"
    near = guess(name, [*BUILT_IN, *file.space.own])
    return f"{near}; a fixed argument of the network belongs in [model_settings]"


def _of_library(file: StudyFile) -> str | None:
    """Of a model of neuralforecast: a name that it does not take, or a list that is none. What
    else a value may be, only the class knows.
    """
    name = library_class(file.model)
    if name is None:
        return None
    try:
        names = model_names()
        taken = constructor_arguments(name) if name in names else ()
    except UsageError:  # not installed here, or not as we know it: a training will say so
        return None
    if name not in names:
        return f"model: {unknown_name(f'model of {LIBRARY}', name, names)}"
    for key, argument, value in _given(file):
        if (key, argument) == ("space", "revin"):  # whose default has been looked at
            continue
        try:
            given = {argument: list_in(value)}
            take_our_norm(file.model, taken, given)
            check_names(file.model, given, taken)
        except UsageError as error:
            return f"{key}.{argument}: {error}"
    return None


def _given(file: StudyFile) -> Iterator[tuple[str, str, Any]]:
    """Table, name and value of whatever a network is built with; a range has no one value."""
    for argument, value in file.model_settings.items():
        yield "model_settings", argument, value
    loss = file.training.loss
    apart = {"learning_rate", "weight_decay", "batch_size", *OF_THE_TASK, *OF_TRAINING}
    apart |= {loss.weight} if loss is not None and isinstance(loss.weight, str) else set()
    defaults: Mapping[str, Any] = file.defaults.values()
    for key, table in (("defaults", defaults), ("space", dict.fromkeys(file.space.ranges))):
        for argument, value in table.items():
            if argument not in apart:
                yield key, argument, value
