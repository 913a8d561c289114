"""A configuration as others wrote it, in a study file, an exported study or a model's card: every
value with its type and range, before anything reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tuner.config import BUILT_IN, OF_THE_TASK, OF_TRAINING, Hyperparameters, LossTerm, Value
from tuner.errors import guess
from tuner.spec.ranges import LARGEST_SIZE, LARGEST_VALUE, ChoiceValue, is_number
from tuner.spec.space import SearchSpace

Rate = Annotated[float, Field(gt=0, le=LARGEST_VALUE)]
Decay = Annotated[float, Field(ge=0, le=LARGEST_VALUE)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]


def of_training_beside(settings: Collection[str]) -> tuple[str, ...]:
    """Those of `OF_TRAINING` that are none of a built network's settings."""
    return tuple(name for name in OF_TRAINING if name not in settings)


class _Values(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, ChoiceValue]

    @property
    def own(self) -> Mapping[str, Value]:
        """Those of the network's own."""
        return dict(sorted((self.__pydantic_extra__ or {}).items()))

    def values(self) -> dict[str, Value]:
        """All of them by name, the built-in ones first."""
        found: dict[str, Value] = {}
        for name in BUILT_IN:
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        return found | dict(self.own)


class Configuration(_Values):
    """A whole one: what every training has to have is there."""

    learning_rate: Rate
    weight_decay: Decay = 0.0
    dropout: Probability | None = None
    hidden_size: Size | None = None
    batch_size: Size

    def hyperparameters(self, loss: LossTerm | None = None) -> Hyperparameters:
        """As trainings get it; `loss` is what theirs adds to the loss."""
        return Hyperparameters.of(self.values(), loss=loss)

    def beside(self, settings: Collection[str], loss: LossTerm | None = None) -> Hyperparameters:
        """The same for a network whose settings hold those of its own, too."""
        return Hyperparameters.of(self.values(), of_training_beside(settings), loss=loss)


class ProgramConfiguration(Configuration):
    """A whole one of a program: nothing has to be there."""

    learning_rate: Rate | None = None  # type: ignore[assignment]
    weight_decay: Decay | None = None  # type: ignore[assignment]
    batch_size: Size | None = None  # type: ignore[assignment]

    def hyperparameters(self, loss: LossTerm | None = None) -> Hyperparameters:
        del loss  # a program has its own
        return Hyperparameters.for_program(self.values())


class PartOfConfiguration(ProgramConfiguration):
    """That part of it which was chosen when its trial ended."""


# What a study file, or a stored study, adds to the training loss: `[training.loss]`.


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
    if not all(is_number(each) for each in found.named):
        return f"{where}: {name} is {found.in_words()}; expected numbers"
    if found.when is not None or found.bounds()[0] < 0:
        return f"{where}: {name} is {found.in_words()}; expected 0 or more, without a 'when'"
    return None
