"""The range of one hyperparameter: numbers on a scale, whole numbers, powers of two, or choices.

Its values are true ones (64, exactly 0, "layer"), and it has two faces. The *stored* one is what
Optuna's tables have: a distribution whose every value is in the range, so that whatever of Optuna's
draws from it stays there. The *encoded* one is what tuner's samplers search: logarithms are its
distributions' business, sizes are exponents of two. Beside these, a value has a place: coordinates
from 0 to 1, in which configurations are near or far. A choice among three or more has a coordinate
for each, of which the largest is chosen, so that none of them lies between two others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeGuard, cast

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from tuner.config import Value
from tuner.files.plain import Prose, excerpt
from tuner.files.toml_file import NO_SUCH_TYPE

# What all ranges have in common: a reason, a condition, and two faces of their values.


LARGEST_SIZE, LARGEST_VALUE = 1 << 30, 1e30
"""Beyond any network and any learning rate; within what databases and samplers can hold."""

LONGEST_CHOICE = 200
"""Characters."""

Number = float | int
Array = np.ndarray[Any, Any]


def _shown(value: Value) -> Value:
    if isinstance(value, str) and not (value.isprintable() and 0 < len(value) <= LONGEST_CHOICE):
        raise ValueError(
            f"{excerpt(repr(value))} is no choice; expected printable text of at most "
            f"{LONGEST_CHOICE} characters"
        )
    return value


def _kept_whole(value: Any) -> Any:
    """Beyond its bounds a whole number would be taken for one that is none."""
    if isinstance(value, int) and abs(value) > LARGEST_SIZE:
        raise ValueError(
            f"{excerpt(str(value))} is too large for a whole number; expected {LARGEST_SIZE} at "
            "most, or a number with a point"
        )
    return value


ChoiceValue = Annotated[
    bool
    | Annotated[int, Field(ge=-LARGEST_SIZE, le=LARGEST_SIZE)]
    | Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
    | str,
    BeforeValidator(_kept_whole),
    AfterValidator(_shown),
]
"""Text, a number, or true and false."""


def _several(values: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    if values == ():
        raise ValueError("names no value; expected one, or a list of some")
    return values if isinstance(values, tuple) else (values,)


Condition = Annotated[
    dict[str, Annotated[ChoiceValue | tuple[ChoiceValue, ...], AfterValidator(_several)]],
    Field(min_length=1),
]
"""The values of others with which a hyperparameter is there."""


class Range(BaseModel):
    """What all ranges have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    reason: Prose = ""
    when: Condition | None = None

    @property
    def condition(self) -> Mapping[str, tuple[Value, ...]]:
        """By the names of others, the values with which this one is there; empty: always."""
        # The type of the field names what a file may say: one value, or a list.
        return cast("Mapping[str, tuple[Value, ...]]", self.when or {})

    @property
    def coordinates(self) -> int:
        """How many a place has in this range."""
        return 1

    @property
    def levels(self) -> int | None:
        """How many values there are; None where they are not counted."""
        return None

    def true(self, stored: Value) -> Value:
        """The true value that one in Optuna's tables stands for."""
        return stored

    def at(self, place: Sequence[float]) -> Value:
        """The encoded value at a place."""
        raise NotImplementedError

    def spread(self, share: float) -> Value:
        """The encoded value of such a share of the range: those of evenly spread shares are."""
        return self.at([share])

    @property
    def named(self) -> tuple[Value, ...]:
        """The true values, where they are named one by one; else none."""
        return ()

    @property
    def whole(self) -> bool:
        """Whether all that it holds are whole numbers."""
        return False

    def means_zero(self, value: Value) -> bool:
        """Whether an encoded or a true value stands for exactly 0 below a logarithmic range."""
        del value
        return False

    def possible(self, value: Value, rounding: float) -> bool:
        """Whether it lies between the lowest and the highest, or so little beside them."""
        low, high = self.bounds()
        span = low * (1 - rounding), high * (1 + rounding)
        return is_number(value) and min(span) <= value <= max(span)

    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest true value, of numbers."""
        raise NotImplementedError

    def definition(self, *, kind: bool) -> dict[str, Any]:
        """What identifies it (a reason is prose and may change); `kind`: also which kind it is."""
        left_out = {"reason"} if kind else {"reason", "type", "powers_of_two"}
        return self.model_dump(mode="json", exclude=left_out, exclude_none=True)


class Levels(Range):
    """A range of finitely many values: each has an equal part of the one coordinate."""

    @property
    def encoded_values(self) -> Sequence[Value]:
        """The encoded values in their order; the true ones, unless a range says otherwise."""
        raise NotImplementedError

    def stored(self) -> BaseDistribution:
        """The distribution in Optuna's tables."""
        raise NotImplementedError

    def encoded(self) -> BaseDistribution:
        """The distribution that a sampler searches."""
        return self.stored()

    @property
    def levels(self) -> int:
        return len(self.encoded_values)

    def value(self, level: int) -> Value:
        """The encoded value number `level`, from 0."""
        return self.encoded_values[level]

    def level(self, encoded: Value) -> int:
        """Which one an encoded value is."""
        return self.encoded_values.index(encoded)

    def encode(self, value: Value) -> Value:
        """The encoded value of a true one."""
        return self.value(self.level(value))

    def decode(self, encoded: Value) -> Value:
        """The true value."""
        return self.encode(encoded)

    def values(self) -> tuple[Value, ...]:
        """All true values."""
        return tuple(map(self.decode, self.encoded_values))

    @property
    def single(self) -> bool:
        return self.levels == 1

    @property
    def whole(self) -> bool:
        return True

    def steps(self, encoded: Value) -> Iterator[tuple[float, Value]]:
        """How far a step is, as a share of the range, and the encoded values one step from this."""
        level = self.level(encoded)
        for there in (level - 1, level + 1):
            if 0 <= there < self.levels:
                yield 1 / self.levels, self.value(there)

    def snapped(self, x: Array) -> Array:
        """Where values of these coordinates are seen, (rows, coordinates) both: in the middle of
        their parts of the range.
        """
        middles: Array = (
            np.minimum(np.floor(x * self.levels), self.levels - 1) + 0.5
        ) / self.levels
        return middles

    def at(self, place: Sequence[float]) -> Value:
        """The encoded value at a place."""
        return self.value(min(math.floor(place[0] * self.levels), self.levels - 1))

    def place(self, encoded: Value) -> tuple[float, ...]:
        """The middle of the part that belongs to an encoded value."""
        return ((self.level(encoded) + 0.5) / self.levels,)


def is_number(value: Value) -> TypeGuard[float]:
    """True for a finite number, as large as a float at most; true and false are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def is_whole(value: Value) -> TypeGuard[float]:
    """True for a whole number, also where it is written as a float."""
    return is_number(value) and float(value).is_integer()


def check_order(low: float, high: float) -> None:
    """Raises ValueError where `low` is above `high`."""
    if low > high:
        raise ValueError(f"low = {low:g} is above high = {high:g}; swap them")


# Choices, which have no order.


MOST_CHOICES = 64


class ChoiceRange(Levels):
    """One of `choices`, which have no order."""

    choices: Annotated[tuple[ChoiceValue, ...], Field(min_length=1, max_length=MOST_CHOICES)]
    type: Literal["choice"] = "choice"

    @model_validator(mode="after")
    def _check(self) -> ChoiceRange:
        kinds = {_kind(choice) for choice in self.choices}
        if len(kinds) > 1:
            raise ValueError(
                f"choices are {' and '.join(sorted(kinds))}; expected one kind, such as text alone"
            )
        for i, choice in enumerate(self.choices):
            if choice in self.choices[:i]:
                raise ValueError(f"choices hold {choice!r} twice; leave one out")
        return self

    def stored(self) -> BaseDistribution:
        return CategoricalDistribution(self.choices)

    @property
    def encoded_values(self) -> Sequence[Value]:
        return self.choices

    @property
    def named(self) -> tuple[Value, ...]:
        return self.choices

    @property
    def whole(self) -> bool:
        return all(is_whole(value) for value in self.choices)

    def possible(self, value: Value, rounding: float) -> bool:
        del rounding
        return self.outside(value) is None

    def steps(self, encoded: Value) -> Iterator[tuple[float, Value]]:
        for value in self.choices:
            if value != encoded:
                yield 1.0, value

    def snapped(self, x: Array) -> Array:
        """Those of three or more on the corner of one choice."""
        if self.coordinates == 1:
            return super().snapped(x)
        corners: Array = np.eye(self.levels)[np.argmax(x, axis=1)]
        return corners

    def bounds(self) -> tuple[float, float]:
        numbers = [each for each in self.choices if is_number(each)]
        return min(numbers), max(numbers)

    def in_words(self) -> str:
        """Where it goes."""
        return " or ".join(str(each) for each in self.choices)

    @property
    def coordinates(self) -> int:
        return 1 if self.levels <= 2 else self.levels  # noqa: PLR2004 - two lie on one line

    def at(self, place: Sequence[float]) -> Value:
        if self.coordinates == 1:
            return super().at(place)
        return self.choices[max(range(self.levels), key=lambda i: place[i])]

    def spread(self, share: float) -> Value:
        return super().at([share])

    def place(self, encoded: Value) -> tuple[float, ...]:
        if self.coordinates == 1:
            return super().place(encoded)
        chosen = self.level(encoded)
        return tuple(1.0 if i == chosen else 0.0 for i in range(self.levels))

    def nearest(self, value: Value) -> Value | None:
        """The choice itself; None where it is none of them."""
        return value if self.outside(value) is None else None

    def outside(self, value: Value) -> str | None:
        same_kind = _kind(value) == _kind(self.choices[0])
        if same_kind and value in self.choices:
            return None
        return f"{value!r} is none of {', '.join(repr(each) for each in self.choices)}"


def _kind(value: Value) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "text"
    return "numbers"


# Numbers on a scale.


ZERO_SHARE = 0.1
"""Where a logarithmic range includes zero, this share of the encoded range means exactly 0."""
NEAR = 0.02
"""How far, as a share of its range, a continuous value moves to make a configuration new."""
BELOW = 1e-9
"""How far below a logarithmic range, as a share of its low end, the number lies that stands for
exactly 0 in Optuna's tables: no draw falls between the two, and no rounding makes one the other."""
SAFE_LOW = 1e-200
"""Logarithmic ranges from here on have no number that rounds to 0, up to any `high`."""


class FloatRange(Range):
    """`low` to `high`, on a `log` or `linear` scale. `zero` adds exactly 0 below a log range."""

    low: Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
    high: Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
    scale: Literal["log", "linear"] = "linear"
    zero: bool = False
    type: Literal["float"] = "float"

    @model_validator(mode="after")
    def _check(self) -> FloatRange:
        check_order(self.low, self.high)
        if self.scale == "log" and self.low <= 0:
            raise ValueError(
                f"a log range cannot start at {self.low:g}: expected low > 0; "
                "to include exactly 0, keep low > 0 and set zero = true"
            )
        if self.scale == "log" and self._encoded_low < sys.float_info.min:
            raise ValueError(
                f"low = {self.low:g} is too small for a log range"
                f"{' with zero = true' if self.zero else ''}; expected {SAFE_LOW:g} or more"
            )
        if self.zero and self.scale != "log":
            raise ValueError(
                "zero = true belongs to a log range; a linear range simply starts at low = 0"
            )
        return self

    @property
    def single(self) -> bool:
        return self.low == self.high and not self.zero

    def bounds(self) -> tuple[float, float]:
        return 0.0 if self.zero else self.low, self.high

    def in_words(self) -> str:
        return f"{'0, or ' if self.zero else ''}{self.low:g} to {self.high:g}, {self.scale}"

    def stored(self) -> BaseDistribution:
        if self.zero and self.low == self.high:
            return CategoricalDistribution((0.0, self.low))
        lowest = self._stands_for_zero if self.zero else self.low
        return FloatDistribution(lowest, self.high, log=self.scale == "log")

    @property
    def _stands_for_zero(self) -> float:
        """In Optuna's tables, whose logarithmic distributions have no 0."""
        return self.low * (1 - BELOW)

    def true(self, stored: Value) -> Value:
        near = is_number(stored) and math.isclose(stored, self._stands_for_zero, rel_tol=BELOW / 2)
        return 0.0 if self.zero and near else stored

    def encoded(self) -> BaseDistribution:
        return FloatDistribution(self._encoded_low, self.high, log=self.scale == "log")

    @property
    def _encoded_low(self) -> float:
        if not self.zero:
            return self.low
        return float(self.low * (self.low / self.high) ** (ZERO_SHARE / (1 - ZERO_SHARE)))

    def encode(self, value: Value) -> Value:
        return self._encoded_low if self.means_zero(value) else float(value)

    def decode(self, encoded: Value) -> Value:
        return 0.0 if self.means_zero(encoded) else float(encoded)

    def means_zero(self, value: Value) -> bool:
        return self.zero and float(value) < self.low

    def steps(self, encoded: Value) -> Iterator[tuple[float, Value]]:
        here = self.place(encoded)[0]
        for there in (here - NEAR, here + NEAR):
            if not self.single and 0 <= there <= 1:
                yield NEAR, self.at([there])

    def snapped(self, x: Array) -> Array:
        if self.low == self.high:
            return np.full_like(x, 0.5)
        return np.where(x < ZERO_SHARE, 0.0, x) if self.zero else x

    def at(self, place: Sequence[float]) -> Value:
        """The encoded value at a place."""
        share = place[0]
        if self.scale == "linear":
            return self.low + share * (self.high - self.low)
        low, high = math.log(self._encoded_low), math.log(self.high)
        return min(max(math.exp(low + share * (high - low)), self._encoded_low), self.high)

    def place(self, encoded: Value) -> tuple[float, ...]:
        """Where an encoded value lies; the inverse of `at`."""
        low, high, value = self._encoded_low, self.high, float(encoded)
        if self.scale == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return ((value - low) / (high - low) if high > low else 0.5,)

    def nearest(self, value: Value) -> Value | None:
        """The true value that is nearest to `value`; None to what is no number."""
        if not is_number(value):
            return None
        if self.means_zero(value):
            return 0.0
        return min(max(float(value), self.low), self.high)

    def outside(self, value: Value) -> str | None:
        """What is wrong with a true value; None where it is in the range."""
        if not is_number(value):
            return f"{value!r} is no number"
        if (self.zero and value == 0) or self.low <= float(value) <= self.high:
            return None
        return f"{value:g} is outside {self.low:g} to {self.high:g}"


def held(value: Value, distribution: BaseDistribution) -> Value:
    """What Optuna's tables have for a true value: the lowest one for the 0 that a logarithmic
    distribution lacks.
    """
    if value == 0 and isinstance(distribution, FloatDistribution) and distribution.log:
        return distribution.low
    return value


# Whole numbers: powers of two, or in steps.


class SizeRange(Levels):
    """Powers of two from `low` to `high`: sizes that tensor cores like, searched by exponent."""

    low: Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
    high: Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
    type: Literal["int"] = "int"
    powers_of_two: Literal[True] = True

    @model_validator(mode="after")
    def _check(self) -> SizeRange:
        check_order(self.low, self.high)
        for key, size in (("low", self.low), ("high", self.high)):
            if size & (size - 1):
                raise ValueError(
                    f"{key} = {size} is no power of two; "
                    f"expected e.g. {1 << (size.bit_length() - 1)}"
                )
        return self

    def stored(self) -> BaseDistribution:
        return CategoricalDistribution(self.values())

    @property
    def encoded_values(self) -> Sequence[Value]:
        """The exponents."""
        return range(self.low.bit_length() - 1, self.high.bit_length())

    def encoded(self) -> BaseDistribution:
        return IntDistribution(self.low.bit_length() - 1, self.high.bit_length() - 1)

    def encode(self, value: Value) -> Value:
        return round(math.log2(float(value)))

    def decode(self, encoded: Value) -> Value:
        return 1 << int(encoded)

    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def in_words(self) -> str:
        return f"{self.low} to {self.high}, powers of two"

    def nearest(self, value: Value) -> Value | None:
        """The power of two that is nearest on a logarithmic scale; None to what is no number."""
        if not is_number(value):
            return None
        nearest = 1 << round(math.log2(value)) if value >= self.low else self.low
        return min(nearest, self.high)

    def outside(self, value: Value) -> str | None:
        if not is_whole(value):
            return f"{value!r} is no whole number"
        power = int(value) > 0 and int(value) & (int(value) - 1) == 0
        if power and self.low <= value <= self.high:
            return None
        powers = "" if power else " (powers of two)"
        return f"{value:g} is outside {self.low:g} to {self.high:g}{powers}"


class IntRange(Levels):
    """Whole numbers from `low` on in steps of `step`, up to `high`."""

    low: Annotated[int, Field(ge=-LARGEST_SIZE, le=LARGEST_SIZE)]
    high: Annotated[int, Field(ge=-LARGEST_SIZE, le=LARGEST_SIZE)]
    step: Annotated[int, Field(ge=1, le=LARGEST_SIZE)] = 1
    type: Literal["int"] = "int"
    powers_of_two: Literal[False] = Field(False, exclude=True)

    @model_validator(mode="after")
    def _check(self) -> IntRange:
        check_order(self.low, self.high)
        if (self.high - self.low) % self.step:
            last = self.high - (self.high - self.low) % self.step
            raise ValueError(
                f"high = {self.high} is no whole number of steps of {self.step} from low = "
                f"{self.low}; expected e.g. {last}"
            )
        return self

    def stored(self) -> BaseDistribution:
        return IntDistribution(self.low, self.high, step=self.step)

    @property
    def encoded_values(self) -> Sequence[Value]:
        return range(self.low, self.high + 1, self.step)

    def level(self, encoded: Value) -> int:
        """Also of what lies between two steps, as others may have stored it."""
        return round((int(encoded) - self.low) / self.step)

    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def in_words(self) -> str:
        steps = f", steps of {self.step}" if self.step > 1 else ""
        return f"{self.low} to {self.high}{steps}"

    def nearest(self, value: Value) -> Value | None:
        if not is_number(value):
            return None
        return self.value(min(max(round((value - self.low) / self.step), 0), self.levels - 1))

    def outside(self, value: Value) -> str | None:
        if not is_whole(value):
            return f"{value!r} is no whole number"
        if self.low <= value <= self.high and (int(value) - self.low) % self.step == 0:
            return None
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{value:g} is outside {self.low} to {self.high}{steps}"


# A range as a file declares it: its `type` says which it is, or the name of what it is for.


AnyRange = FloatRange | SizeRange | IntRange | ChoiceRange
"""Any of them."""


def _kind_of(value: Any, unsaid: str | None) -> str | None:
    """Which range a table describes; `unsaid` where it does not say."""
    if isinstance(value, Range):
        return type(value).__name__
    said = value.get("type") if isinstance(value, Mapping) else None
    if said is None:
        return unsaid
    if said == "int":
        return "SizeRange" if value.get("powers_of_two") is True else "IntRange"
    named = {"float": "FloatRange", "choice": "ChoiceRange"}
    return named.get(said) if isinstance(said, str) else None


def _told_apart(unsaid: str | None, kinds: str) -> Discriminator:
    def kind_of(value: Any) -> str | None:
        return _kind_of(value, unsaid)

    return Discriminator(
        kind_of,
        custom_error_message=f"Input should have type = {kinds}",
        custom_error_type=NO_SUCH_TYPE,
    )


_Float = Annotated[FloatRange, Tag("FloatRange")]
_Size = Annotated[SizeRange, Tag("SizeRange")]
_Int = Annotated[IntRange, Tag("IntRange")]
_Choice = Annotated[ChoiceRange, Tag("ChoiceRange")]

RangeOfNumbers = Annotated[_Float | _Choice, _told_apart("FloatRange", '"float" or "choice"')]
"""Of a hyperparameter that is a number: a range, unless it says otherwise."""
RangeOfSizes = Annotated[_Size | _Int | _Choice, _told_apart("SizeRange", '"int" or "choice"')]
"""Of a hyperparameter that is a size: powers of two, unless it says otherwise."""
OwnRange = Annotated[
    _Float | _Size | _Int | _Choice, _told_apart(None, '"float", "int" or "choice"')
]
"""Of a hyperparameter of the user's own, which says what it is."""
