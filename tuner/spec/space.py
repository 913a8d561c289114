"""A study's search space: five hyperparameters, each with a range, a scale and the reason for it.

Two faces of one space. The *stored* face is what the database and every reader sees: true values
(hidden_size 64, weight_decay 0). The *encoded* face is what a sampler searches: all numeric,
logarithmic where that is the scale, with exponents of two for sizes. `encode` and `decode` go
between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from pydantic import BaseModel, ConfigDict, Field, model_validator

from tuner.config import Hyperparameters
from tuner.files.plain import Prose

ZERO_SHARE = 0.1
"""Where a logarithmic range includes zero, this share of the encoded range means exactly 0."""

LARGEST_SIZE, LARGEST_VALUE = 1 << 30, 1e30
"""Beyond any network and any learning rate; within what databases and samplers can hold."""

Value = float | int


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class FloatRange(_Strict):
    """`low` to `high`, on a `log` or `linear` scale. `zero` adds exactly 0 below a log range."""

    low: Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
    high: Annotated[float, Field(ge=-LARGEST_VALUE, le=LARGEST_VALUE)]
    scale: Literal["log", "linear"] = "linear"
    zero: bool = False
    reason: Prose = ""

    @model_validator(mode="after")
    def _check(self) -> FloatRange:
        _ordered(self.low, self.high)
        if self.scale == "log" and self.low <= 0:
            raise ValueError(
                f"a log range cannot start at {self.low:g}: expected low > 0; "
                "to include exactly 0, keep low > 0 and set zero = true"
            )
        if self.zero and self.scale != "log":
            raise ValueError(
                "zero = true belongs to a log range; a linear range simply starts at low = 0"
            )
        return self

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
        return self._encoded_low if self.zero and value < self.low else float(value)

    def decode(self, value: Value) -> Value:
        return 0.0 if self.zero and value < self.low else float(value)

    def at(self, share: float) -> Value:
        """The encoded value at `share` (0 to 1) of the encoded range."""
        if self.scale == "linear":
            return self.low + share * (self.high - self.low)
        low, high = math.log(self._encoded_low), math.log(self.high)
        return min(max(math.exp(low + share * (high - low)), self._encoded_low), self.high)

    def share(self, encoded: Value) -> float:
        """Where an encoded value lies in the encoded range, 0 to 1; the inverse of `at`."""
        low, high, value = self._encoded_low, self.high, float(encoded)
        if self.scale == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5

    def nearest(self, value: Value) -> Value:
        """The stored value of this range that is nearest to `value`, which may lie outside."""
        if self.zero and value < self.low:
            return 0.0
        return min(max(float(value), self.low), self.high)


class SizeRange(_Strict):
    """Powers of two from `low` to `high`: sizes that tensor cores like, searched by exponent."""

    low: Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
    high: Annotated[int, Field(gt=0, le=LARGEST_SIZE)]
    reason: Prose = ""

    @model_validator(mode="after")
    def _check(self) -> SizeRange:
        _ordered(self.low, self.high)
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
        return round(math.log2(value))

    def decode(self, value: Value) -> Value:
        return 1 << int(value)

    @property
    def levels(self) -> int:
        """How many sizes there are."""
        return self.high.bit_length() - self.low.bit_length() + 1

    def at(self, share: float) -> Value:
        """The exponent at `share` (0 to 1) of the range: each has an equal part of it."""
        low, high = self.low.bit_length() - 1, self.high.bit_length() - 1
        return min(low + math.floor(share * self.levels), high)

    def share(self, encoded: Value) -> float:
        """The middle of the part of the range, 0 to 1, that belongs to an exponent."""
        return (encoded - (self.low.bit_length() - 1) + 0.5) / self.levels

    def nearest(self, value: Value) -> Value:
        """The power of two within the range that is nearest to `value`, on a logarithmic scale."""
        exponent = round(math.log2(value)) if value > 0 else 0
        return 1 << min(max(exponent, self.low.bit_length() - 1), self.high.bit_length() - 1)


def _ordered(low: float, high: float) -> None:
    if low > high:
        raise ValueError(f"low = {low:g} is above high = {high:g}; swap them")


class SearchSpace(_Strict):
    """The ranges of the five hyperparameters."""

    learning_rate: FloatRange
    weight_decay: FloatRange
    dropout: FloatRange
    hidden_size: SizeRange
    batch_size: SizeRange

    @model_validator(mode="after")
    def _check(self) -> SearchSpace:
        if self.learning_rate.low <= 0:
            raise ValueError(
                f"learning_rate.low = {self.learning_rate.low:g}: expected a number above 0"
            )
        if self.weight_decay.low < 0:
            raise ValueError(f"weight_decay.low = {self.weight_decay.low:g}: expected 0 or more")
        if self.dropout.low < 0 or self.dropout.high >= 1:
            raise ValueError("dropout: expected a range within 0 <= low <= high < 1")
        return self

    @property
    def ranges(self) -> dict[str, FloatRange | SizeRange]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def stored(self) -> dict[str, BaseDistribution]:
        """Distributions of the true values, as the database holds them."""
        return {name: r.stored() for name, r in self.ranges.items()}

    def encoded(self) -> dict[str, BaseDistribution]:
        """Distributions that a sampler searches."""
        return {name: r.encoded() for name, r in self.ranges.items()}

    def encode(self, params: Mapping[str, Value]) -> dict[str, Value]:
        return {name: r.encode(params[name]) for name, r in self.ranges.items()}

    def decode(self, params: Mapping[str, Value]) -> dict[str, Value]:
        return {name: r.decode(params[name]) for name, r in self.ranges.items()}

    def nearest(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """The configuration of this space nearest to `params`: clipped, sizes powers of two."""
        return {name: r.nearest(params[name]) for name, r in self.ranges.items()}

    def at(self, shares: Sequence[float]) -> dict[str, Value]:
        """The configuration at a point of the unit cube: one coordinate a range, in their order."""
        return {
            name: r.decode(r.at(share))
            for (name, r), share in zip(self.ranges.items(), shares, strict=True)
        }

    def shares(self, params: Mapping[str, Value]) -> list[float]:
        """The point of the unit cube where a stored configuration lies."""
        return [r.share(r.encode(params[name])) for name, r in self.ranges.items()]

    def contains(self, params: Mapping[str, Value]) -> list[str]:
        """What in `params` lies outside, one phrase each; empty when all of it is inside."""
        outside = []
        for name, r in self.ranges.items():
            value = params[name]
            zero = isinstance(r, FloatRange) and r.zero and value == 0
            power = isinstance(r, FloatRange) or (int(value) & (int(value) - 1)) == 0
            if not (zero or (r.low <= value <= r.high and power)):
                outside.append(
                    f"{name} = {value:g} is outside {r.low:g} to {r.high:g}"
                    + ("" if power else " (powers of two)")
                )
        return outside

    def definition(self) -> dict[str, Any]:
        """What identifies the space (reasons are prose and may change)."""
        return {name: r.model_dump(exclude={"reason"}) for name, r in self.ranges.items()}


def hyperparameters(params: Mapping[str, Value]) -> Hyperparameters:
    """The typed record of a trial's true values."""
    return Hyperparameters(
        learning_rate=float(params["learning_rate"]),
        weight_decay=float(params["weight_decay"]),
        dropout=float(params["dropout"]),
        hidden_size=int(params["hidden_size"]),
        batch_size=int(params["batch_size"]),
    )
