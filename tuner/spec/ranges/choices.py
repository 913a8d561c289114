"""Choices, which have no order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from optuna.distributions import BaseDistribution, CategoricalDistribution
from pydantic import Field, model_validator

from tuner.config import Value
from tuner.spec.ranges.base import ChoiceValue, Levels, is_number

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

    def encoded(self) -> BaseDistribution:
        return self.stored()

    def encode(self, value: Value) -> Value:
        return self.choices[self.level(value)]

    def decode(self, encoded: Value) -> Value:
        return encoded

    @property
    def levels(self) -> int:
        return len(self.choices)

    def bounds(self) -> tuple[float, float]:
        numbers = [each for each in self.choices if is_number(each)]
        return min(numbers), max(numbers)

    def in_words(self) -> str:
        return " or ".join(str(each) for each in self.choices)

    def value(self, level: int) -> Value:
        return self.choices[level]

    def level(self, encoded: Value) -> int:
        return self.choices.index(encoded)

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
