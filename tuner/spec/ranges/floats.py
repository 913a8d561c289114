"""Numbers on a scale."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from optuna.distributions import BaseDistribution, FloatDistribution
from pydantic import Field, model_validator

from tuner.config import Value
from tuner.spec.ranges.base import LARGEST_VALUE, Range, check_order, is_number

ZERO_SHARE = 0.1
"""Where a logarithmic range includes zero, this share of the encoded range means exactly 0."""
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
        if self.zero:
            return FloatDistribution(0.0, self.high)
        return FloatDistribution(self.low, self.high, log=self.scale == "log")

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
        """Whether an encoded or a stored value stands for exactly 0 below a logarithmic range."""
        return self.zero and float(value) < self.low

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
        """The stored value that is nearest to `value`; None to what is no number."""
        if not is_number(value):
            return None
        if self.means_zero(value):
            return 0.0
        return min(max(float(value), self.low), self.high)

    def outside(self, value: Value) -> str | None:
        """What is wrong with a stored value; None where it is in the range."""
        if not is_number(value):
            return f"{value!r} is no number"
        if (self.zero and value == 0) or self.low <= float(value) <= self.high:
            return None
        return f"{value:g} is outside {self.low:g} to {self.high:g}"
