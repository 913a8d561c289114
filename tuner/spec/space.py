"""A study's search space: the built-in hyperparameters and the network's own, each with a range, a
scale and the reason for it.

A configuration has true values (hidden_size 64, weight_decay 0), and only of the hyperparameters
that are there: some belong to a choice of another. The space has two faces beside them. The
*stored* one is what Optuna's tables have of a configuration, whose logarithmic ranges hold no 0:
`held` and `true` lead there and back. The *encoded* one is what tuner's samplers search: all
hyperparameters, always, sizes as exponents of two. `encode` and `decode` lead there and back.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from optuna.distributions import BaseDistribution
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tuner.config import BUILT_IN, OF_THE_TASK, OF_TRAINING, Hyperparameters, LossTerm, Value
from tuner.errors import guess
from tuner.files.plain import excerpt, refuse_long_name
from tuner.spec.ranges import (
    LARGEST_SIZE,
    LARGEST_VALUE,
    AnyRange,
    ChoiceValue,
    FloatRange,
    OwnRange,
    RangeOfNumbers,
    RangeOfSizes,
    SizeRange,
    held,
    is_number,
    is_whole,
)

ROUNDING = 1e-9
"""By how much a database may have rounded the end of a range."""
MIDDLE = 0.5
"""Of each coordinate of what is not there: equal for all, so that it tells none from another."""

NOT_OWN = ("shapes", "self", "own")
"""No hyperparameter can be called so."""

_NATIVE: Mapping[str, type[AnyRange]] = {
    "learning_rate": FloatRange,
    "weight_decay": FloatRange,
    "dropout": FloatRange,
    "hidden_size": SizeRange,
    "batch_size": SizeRange,
}
"""What a built-in hyperparameter is searched by, unless its range says otherwise."""


class SearchSpace(BaseModel):
    """The ranges of all hyperparameters; one that is fixed has a range of one value."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)
    __pydantic_extra__: dict[str, OwnRange]

    learning_rate: RangeOfNumbers
    weight_decay: RangeOfNumbers
    dropout: RangeOfNumbers | None = None
    """None where the network takes none, as with `hidden_size`."""
    hidden_size: RangeOfSizes | None = None
    batch_size: RangeOfSizes

    @model_validator(mode="after")
    def _check(self) -> SearchSpace:
        for name, r in self.own.items():
            _check_name(name)
            if name in OF_THE_TASK and not r.whole:
                raise ValueError(f'{name}: is no range of whole numbers; expected type = "int"')
        for name, r in self.ranges.items():
            if name in BUILT_IN:
                _check_built_in(name, r)
            self._check_condition(name, r.condition)
        return self

    @functools.cached_property
    def own(self) -> Mapping[str, AnyRange]:
        """The ranges of the network's own hyperparameters, by name."""
        return dict(sorted((self.__pydantic_extra__ or {}).items()))

    @functools.cached_property
    def ranges(self) -> dict[str, AnyRange]:
        """All of them, the built-in ones first."""
        built_in = {name: getattr(self, name) for name in BUILT_IN}
        return {name: r for name, r in built_in.items() if r is not None} | dict(self.own)

    @property
    def dimensions(self) -> int:
        """How many coordinates a configuration's place has."""
        return sum(r.coordinates for r in self.ranges.values())

    @functools.cached_property
    def flat(self) -> bool:
        """Whether every configuration has all hyperparameters."""
        return not any(r.when for r in self.ranges.values())

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> SearchSpace:
        """As pydantic's, without what was worked out of the ranges before."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("own", "ranges", "flat"):
            copied.__dict__.pop(name, None)
        return copied

    def there(self, params: Mapping[str, Value]) -> dict[str, AnyRange]:
        """The ranges of those hyperparameters that a configuration with these values has."""
        if self.flat:
            return self.ranges
        return {
            name: r
            for name, r in self.ranges.items()
            if all(params.get(other) in values for other, values in r.condition.items())
        }

    def whole(self, params: Mapping[str, Value]) -> bool:
        """Whether these are all values of a configuration, or more."""
        return self.there(params).keys() <= params.keys()

    def complete(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """The configuration in these values; nothing where they are not all of one."""
        return self.only_there(params) if self.whole(params) else {}

    # -- two faces ---------------------------------------------------------------------------------

    def stored(self) -> dict[str, BaseDistribution]:
        """The distributions in Optuna's tables; every value that they hold is one of the space."""
        return {name: r.stored() for name, r in self.ranges.items()}

    def held(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """What Optuna's tables have for true values."""
        r = self.ranges
        return {name: held(v, r[name].stored()) if name in r else v for name, v in params.items()}

    def true(self, stored: Mapping[str, Value]) -> dict[str, Value]:
        """True values of what Optuna's tables have; of true values themselves."""
        r = self.ranges
        return {name: r[name].true(v) if name in r else v for name, v in stored.items()}

    def encoded(self) -> dict[str, BaseDistribution]:
        """Distributions that a sampler searches."""
        return {name: r.encoded() for name, r in self.ranges.items()}

    def encode(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Encoded values; in the middle of their ranges where a hyperparameter is not there."""
        there = self.there(params)
        return {
            name: r.encode(params[name]) if name in there else r.at([MIDDLE] * r.coordinates)
            for name, r in self.ranges.items()
        }

    def decode(self, encoded: Mapping[str, Value]) -> dict[str, Value]:
        """True values of what is there."""
        return self.only_there({name: r.decode(encoded[name]) for name, r in self.ranges.items()})

    def at(self, point: Sequence[float]) -> dict[str, Value]:
        """The configuration at a point of the unit cube, in the order of the ranges."""
        encoded: dict[str, Value] = {}
        first = 0
        for name, r in self.ranges.items():
            encoded[name] = r.at(point[first : first + r.coordinates])
            first += r.coordinates
        return self.decode(encoded)

    def shares(self, params: Mapping[str, Value]) -> list[float]:
        """The point of the unit cube where a configuration lies."""
        there = self.there(params)
        found: list[float] = []
        for name, r in self.ranges.items():
            if name in there:
                found += r.place(r.encode(params[name]))
            else:
                found += [MIDDLE] * r.coordinates
        return found

    def only_there(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Those of the values that a configuration with them has."""
        there = self.there(params)
        return {name: value for name, value in params.items() if name in there}

    def nearest(
        self, params: Mapping[str, Value], default: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The configuration of this space nearest to `params`, which may be of another space.

        What they lack, or have as something that has no neighbour, is as in `default`, and where
        that lacks it, too, in the middle of its range.
        """
        found: dict[str, Value] = {}
        for name, r in self.ranges.items():
            near = r.nearest(params[name]) if name in params else None
            if near is None:
                near = default.get(name, r.decode(r.at([MIDDLE] * r.coordinates)))
            found[name] = near
        return self.only_there(found)

    # -- what lies in it ---------------------------------------------------------------------------

    def contains(self, params: Mapping[str, Value]) -> list[str]:
        """What in `params` lies outside, one phrase each; empty when all of it is inside."""
        outside, there = list[str](), self.there(params)
        for name, r in there.items():
            if name not in params:
                outside.append(f"{name} is missing")
            elif (wrong := r.outside(params[name])) is not None:
                outside.append(f"{name} = {wrong}")
        for name in params:
            if name not in self.ranges:
                outside.append(f"{name} is no hyperparameter of the space")
            elif name not in there:
                outside.append(
                    f"{name} is there only where {condition_in_words(self.ranges[name])}"
                )
        return outside

    def impossible(self, params: Mapping[str, Any], *, whole: bool) -> str | None:
        """What of a recorded configuration, or of a part of one that is not `whole`, no sampler can
        have chosen; None where all of it is possible.
        """
        for name, value in params.items():
            if name not in self.ranges:
                return f"{name!r} is no hyperparameter of the study"
            if not self.ranges[name].possible(value, ROUNDING):
                return f"{name} = {excerpt(str(value))} is outside of the study's space"
        if whole and not self.whole(params):
            missing = sorted(self.there(params).keys() - params.keys())
            return f"it lacks the hyperparameter {missing[0]}"
        return None

    def input_size_problem(self, task: Mapping[str, Any]) -> str | None:
        """Why the space goes beyond the past that the windows of a task have; None where it does
        not.
        """
        r = self.own.get("input_size")
        if r is None:
            return None
        input_size = int(task["input_size"])
        if r.bounds()[0] >= 1 and r.bounds()[1] <= input_size:
            return None
        return (
            f"[space.input_size] holds {r.in_words()}; task {task['name']!r} has input_size = "
            f"{input_size}: expected 1 to {input_size}, or a longer input_size in the task, whose "
            "windows all configurations forecast"
        )

    def definition(self) -> dict[str, Any]:
        """What identifies the space (reasons are prose and may change)."""
        return {
            name: r.definition(kind=type(r) is not _NATIVE.get(name))
            for name, r in self.ranges.items()
        }

    def _check_condition(self, name: str, when: Mapping[str, Sequence[Value]]) -> None:
        if when and name in BUILT_IN:
            raise ValueError(f"{name}.when: {name} is always there; leave the condition out")
        for other, values in when.items():
            where = f"{name}.when.{other}"
            if other == name:
                raise ValueError(f"{where}: {name} cannot depend on itself; name another, or none")
            if (r := self.ranges.get(other)) is None:
                others = [each for each in self.ranges if each != name]
                raise ValueError(f"{where}: the space has no {other!r}{guess(other, others)}")
            if r.levels is None:
                raise ValueError(f"{where}: {other} is no choice and no whole number")
            if r.when is not None:
                raise ValueError(
                    f"{where}: {other} has a condition itself; name what that one depends on, too"
                )
            for value in values:
                if (wrong := r.outside(value)) is not None:
                    raise ValueError(f"{where}: {wrong}")


class ProgramSpace(SearchSpace):
    """The ranges of a program's hyperparameters: those that tuner knows need not be among them."""

    learning_rate: RangeOfNumbers | None = None  # type: ignore[assignment]
    weight_decay: RangeOfNumbers | None = None  # type: ignore[assignment]
    batch_size: RangeOfSizes | None = None  # type: ignore[assignment]


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name in NOT_OWN:
        raise ValueError(f"{name!r} is no argument of a network; expected a Python name")
    refuse_long_name(name)


def _check_built_in(name: str, r: AnyRange) -> None:
    """Raises ValueError where some value of a range is one that no training takes."""
    size = _NATIVE[name] is SizeRange
    for value in r.named:
        if not (is_whole(value) if size else is_number(value)):
            kind = "whole numbers" if size else "numbers"
            raise ValueError(f"{name}.choices hold {value!r}; expected {kind}")
    low, high = r.bounds()
    if name in ("learning_rate", "hidden_size", "batch_size") and low <= 0:
        raise ValueError(f"{name}: its lowest value is {low:g}; expected a number above 0")
    if name == "weight_decay" and low < 0:
        raise ValueError(f"weight_decay: its lowest value is {low:g}; expected 0 or more")
    if name == "dropout" and (low < 0 or high >= 1):
        raise ValueError("dropout: expected a range within 0 <= low <= high < 1")


def condition_in_words(r: AnyRange) -> str:
    """With which values of others a hyperparameter is there; empty: always."""
    return " and ".join(
        f"{name} is {' or '.join(repr(value) for value in values)}"
        for name, values in r.condition.items()
    )


# A configuration as others wrote it, in a study file, an exported study or a model's card: every
# value with its type and range, before anything reads it.


Rate = Annotated[float, Field(gt=0, le=LARGEST_VALUE)]
Decay = Annotated[float, Field(ge=0, le=LARGEST_VALUE)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]


class Configuration(BaseModel):
    """A whole one: what every training has to have is there."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, defer_build=True)
    __pydantic_extra__: dict[str, ChoiceValue]

    learning_rate: Rate
    weight_decay: Decay = 0.0
    dropout: Probability | None = None
    hidden_size: Size | None = None
    batch_size: Size

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

    def hyperparameters(self, loss: LossTerm | None = None) -> Hyperparameters:
        """As trainings get it; `loss` is what theirs adds to the loss."""
        return Hyperparameters.of(self.values(), loss=loss)


class ProgramConfiguration(Configuration):
    """A whole one of a program, or that part of any which was chosen when its trial ended: nothing
    has to be there.
    """

    learning_rate: Rate | None = None  # type: ignore[assignment]
    weight_decay: Decay | None = None  # type: ignore[assignment]
    batch_size: Size | None = None  # type: ignore[assignment]

    def hyperparameters(self, loss: LossTerm | None = None) -> Hyperparameters:
        del loss  # a program has its own
        return Hyperparameters.for_program(self.values())


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
