"""Does a network know each choice that its study file declares, and each hyperparameter that is
there only sometimes? And can it be trained with each batch size?

The step of a check is of the defaults. What the class does not know would fail every trial that has
it: a sampler comes back to a choice, and learns to avoid what a condition asks for.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tuner.config import OF_THE_TASK, OF_TRAINING, Hyperparameters, ModelShapes, Value, shapes_seen
from tuner.errors import TunerError, UsageError
from tuner.files.plain import excerpt
from tuner.spec.ranges import ChoiceRange

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.spec.study_file import StudyFile

OF_NO_NETWORK = ("learning_rate", "weight_decay", "batch_size", *OF_THE_TASK, *OF_TRAINING)

AT_MOST = 32
"""Networks that are built, each at the defaults but for one value."""


def choices_that_fail(file: StudyFile, shapes: ModelShapes) -> list[str]:
    """What is to be said of each choice, and of each hyperparameter with a condition, with which
    the network cannot be built.
    """
    from tuner.models.fault import FAULTS, on_one_line
    from tuner.training.one_step import build_within_memory

    said = []
    for named, params in itertools.islice(_configurations(file), AT_MOST):
        hyperparameters = Hyperparameters.of(params, loss=file.training.loss)
        try:
            seen = shapes_seen(shapes, hyperparameters)
            build_within_memory(file.architecture(), hyperparameters, seen)
        except FAULTS as error:
            why = str(error) if isinstance(error, TunerError) else on_one_line(error)
            said.append(f"{named} fails: {excerpt(why, at_most=300)}")
    return said


def batch_sizes_that_fail(file: StudyFile, prepared: PreparedData) -> list[str]:
    """What is to be said of batch sizes other than the default that leave one window for the last
    batch, where a step on that fails. If the default does, its own check has said so.
    """
    from tuner.training.batching import sizes_with_a_lone_window
    from tuner.training.one_step import train_one_step

    hyperparameters, searched = file.default_hyperparameters(), file.space.batch_size
    if searched is None:
        return []
    found = sizes_with_a_lone_window(len(prepared.train.starts))
    sizes = [size for size in found if not searched.outside(size)]
    if not sizes or hyperparameters.batch_size in sizes:
        return []
    tried = dataclasses.replace(hyperparameters, batch_size=sizes[-1])
    try:
        train_one_step(file.architecture(), tried, file.training, prepared, inspected=False)
    except UsageError as error:
        listing = excerpt(", ".join(map(str, sizes)))
        fail = "fails" if len(sizes) == 1 else "fail"
        return [f"batch_size = {listing} {fail}: {excerpt(str(error), at_most=300)}"]
    return []


def _configurations(file: StudyFile) -> Iterator[tuple[str, dict[str, Value]]]:
    """What is tried, in words, and the configuration that has it: each choice that is not the
    default's, then whatever none of these, nor the defaults, have.
    """
    defaults = file.defaults.values()
    tried = set(defaults)
    for name, r in file.space.ranges.items():
        if not isinstance(r, ChoiceRange) or name in OF_NO_NETWORK:
            continue
        for choice in r.choices:
            params = file.space.nearest({**defaults, name: choice}, defaults)
            if params.get(name) == choice and choice != defaults.get(name):
                tried |= set(params)
                yield f"{name} = {choice!r}", params
    for name, r in file.space.ranges.items():
        if name in tried or name in OF_NO_NETWORK or r.when is None:
            continue
        there = {other: values[0] for other, values in r.condition.items()}
        params = file.space.nearest({**defaults, **there}, defaults)
        if name in params:
            tried |= set(params)
            where = " and ".join(f"{other} is {value!r}" for other, value in there.items())
            yield f"{name} = {params[name]!r}, where {where},", params
