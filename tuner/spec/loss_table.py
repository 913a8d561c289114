"""What a study file, or a stored study, adds to the training loss: `[training.loss]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.config import BUILT_IN, OF_THE_TASK, OF_TRAINING
from tuner.config.loss_term import LossTerm
from tuner.errors import guess
from tuner.spec.ranges import ChoiceRange, is_number
from tuner.spec.space import SearchSpace


def named_weight(file: Mapping[str, Any]) -> str:
    """The hyperparameter that a study file's data name as weight; empty where they name none."""
    training = file.get("training")
    loss = training.get("loss") if isinstance(training, dict) else None
    weight = loss.get("weight") if isinstance(loss, dict) else None
    return weight if isinstance(weight, str) else ""


def weight_problem(loss: LossTerm | None, space: SearchSpace) -> str | None:
    """Why the weight cannot be what it is said to be, in one line; None where it can."""
    if loss is None or not isinstance(loss.weight, str):
        return None
    name, where = loss.weight, "training.loss.weight"
    if name in (*BUILT_IN, *OF_THE_TASK, *OF_TRAINING):
        return f"{where}: {name} is for something else; expected a hyperparameter of its own"
    found = space.own.get(name)
    if found is None:
        return (
            f"{where}: there is no [space.{name}] and no default of it{guess(name, space.own)}; "
            "add one, or write a number"
        )
    if isinstance(found, ChoiceRange) and not all(is_number(each) for each in found.choices):
        return f"{where}: {name} is {found.in_words()}; expected numbers"
    if found.when is not None or found.bounds()[0] < 0:
        return f"{where}: {name} is {found.in_words()}; expected 0 or more, without a 'when'"
    return None
