"""The range of one hyperparameter: numbers on a scale, whole numbers, powers of two, or choices.

Each range has two faces. The *stored* one holds true values (64, exactly 0, "layer"); the *encoded*
one is what a sampler searches: logarithms are its distributions' business, sizes are exponents of
two. Beside these, a value has a place: coordinates from 0 to 1, in which configurations are near or
far. A choice among three or more has a coordinate for each, of which the largest is chosen, so that
none of them lies between two others.
"""

from __future__ import annotations

from tuner.spec.ranges.base import (
    LARGEST_SIZE,
    LARGEST_VALUE,
    ChoiceValue,
    Levels,
    Range,
    is_number,
    is_whole,
)
from tuner.spec.ranges.choices import ChoiceRange
from tuner.spec.ranges.declared import AnyRange, OwnRange, RangeOfNumbers, RangeOfSizes
from tuner.spec.ranges.floats import ZERO_SHARE, FloatRange
from tuner.spec.ranges.integers import IntRange, SizeRange

__all__ = [
    "LARGEST_SIZE",
    "LARGEST_VALUE",
    "ZERO_SHARE",
    "AnyRange",
    "ChoiceRange",
    "ChoiceValue",
    "FloatRange",
    "IntRange",
    "Levels",
    "OwnRange",
    "Range",
    "RangeOfNumbers",
    "RangeOfSizes",
    "SizeRange",
    "is_number",
    "is_whole",
]
