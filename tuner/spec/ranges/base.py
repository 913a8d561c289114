"""What all ranges have in common: a reason, a condition, and two faces of their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeGuard, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tuner.config import Value
from tuner.files.plain import Prose, excerpt

LARGEST_SIZE, LARGEST_VALUE = 1 << 30, 1e30
"""Beyond any network and any learning rate; within what databases and samplers can hold."""

LONGEST_CHOICE = 200
"""Characters."""

Number = float | int


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

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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

    def at(self, place: Sequence[float]) -> Value:
        """The encoded value at a place."""
        raise NotImplementedError

    def spread(self, share: float) -> Value:
        """The encoded value of such a share of the range: those of evenly spread shares are."""
        return self.at([share])

    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest stored value, of numbers."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Where it goes."""
        raise NotImplementedError

    def definition(self, *, kind: bool) -> dict[str, Any]:
        """What identifies it (a reason is prose and may change); `kind`: also which kind it is."""
        left_out = {"reason"} if kind else {"reason", "type", "powers_of_two"}
        return self.model_dump(mode="json", exclude=left_out, exclude_none=True)


class Levels(Range):
    """A range of finitely many values: each has an equal part of the one coordinate."""

    @property
    def levels(self) -> int:
        raise NotImplementedError

    def value(self, level: int) -> Value:
        """The encoded value number `level`, from 0."""
        raise NotImplementedError

    def decode(self, encoded: Value) -> Value:
        """The stored value."""
        raise NotImplementedError

    def values(self) -> tuple[Value, ...]:
        """All stored values."""
        return tuple(self.decode(self.value(level)) for level in range(self.levels))

    def level(self, encoded: Value) -> int:
        """Which one an encoded value is."""
        raise NotImplementedError

    @property
    def single(self) -> bool:
        return self.levels == 1

    def at(self, place: Sequence[float]) -> Value:
        """The encoded value at a place."""
        return self.value(min(math.floor(place[0] * self.levels), self.levels - 1))

    def place(self, encoded: Value) -> tuple[float, ...]:
        """The middle of the part that belongs to an encoded value."""
        return ((self.level(encoded) + 0.5) / self.levels,)


def is_number(value: Value) -> TypeGuard[float]:
    """True for a finite number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Value) -> TypeGuard[float]:
    """True for a whole number, also where it is written as a float."""
    return is_number(value) and float(value).is_integer()


def check_order(low: float, high: float) -> None:
    """Raises ValueError where `low` is above `high`."""
    if low > high:
        raise ValueError(f"low = {low:g} is above high = {high:g}; swap them")
