"""Whole numbers: powers of two, or in steps."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from optuna.distributions import BaseDistribution, IntDistribution
from pydantic import Field, model_validator

from tuner.config import Value
from tuner.spec.ranges.base import LARGEST_SIZE, Levels, check_order, is_number, is_whole


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
        return IntDistribution(self.low, self.high)

    def encoded(self) -> BaseDistribution:
        return IntDistribution(self.low.bit_length() - 1, self.high.bit_length() - 1)

    def encode(self, value: Value) -> Value:
        return round(math.log2(float(value)))

    def decode(self, encoded: Value) -> Value:
        return 1 << int(encoded)

    @property
    def levels(self) -> int:
        return self.high.bit_length() - self.low.bit_length() + 1

    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def in_words(self) -> str:
        return f"{self.low} to {self.high}, powers of two"

    def value(self, level: int) -> Value:
        return self.low.bit_length() - 1 + level

    def level(self, encoded: Value) -> int:
        return int(encoded) - (self.low.bit_length() - 1)

    def nearest(self, value: Value) -> Value | None:
        """The power of two that is nearest on a logarithmic scale; None to what is no number."""
        if not is_number(value):
            return None
        exponent = round(math.log2(value)) if value > 0 else 0
        return 1 << min(max(exponent, self.low.bit_length() - 1), self.high.bit_length() - 1)

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

    def encoded(self) -> BaseDistribution:
        return self.stored()

    def encode(self, value: Value) -> Value:
        return int(value)

    def decode(self, encoded: Value) -> Value:
        return int(encoded)

    @property
    def levels(self) -> int:
        return (self.high - self.low) // self.step + 1

    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    def in_words(self) -> str:
        steps = f", steps of {self.step}" if self.step > 1 else ""
        return f"{self.low} to {self.high}{steps}"

    def value(self, level: int) -> Value:
        return self.low + level * self.step

    def level(self, encoded: Value) -> int:
        return round((int(encoded) - self.low) / self.step)

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
