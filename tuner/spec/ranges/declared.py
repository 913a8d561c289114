"""A range as a file declares it: its `type` says which it is, or the name of what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from tuner.files.toml_file import NO_SUCH_TYPE
from tuner.spec.ranges.base import Range
from tuner.spec.ranges.choices import ChoiceRange
from tuner.spec.ranges.floats import FloatRange
from tuner.spec.ranges.integers import IntRange, SizeRange

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


def _float_kind(value: Any) -> str | None:
    return _kind_of(value, "FloatRange")


def _size_kind(value: Any) -> str | None:
    return _kind_of(value, "SizeRange")


def _own_kind(value: Any) -> str | None:
    return _kind_of(value, None)


_Float = Annotated[FloatRange, Tag("FloatRange")]
_Size = Annotated[SizeRange, Tag("SizeRange")]
_Int = Annotated[IntRange, Tag("IntRange")]
_Choice = Annotated[ChoiceRange, Tag("ChoiceRange")]
_OF_NUMBERS = 'Input should have type = "float" or "choice"'
_OF_SIZES = 'Input should have type = "int" or "choice"'
_OF_OWN = 'Input should have type = "float", "int" or "choice"'

RangeOfNumbers = Annotated[
    _Float | _Choice,
    Discriminator(_float_kind, custom_error_message=_OF_NUMBERS, custom_error_type=NO_SUCH_TYPE),
]
"""Of a hyperparameter that is a number: a range, unless it says otherwise."""
RangeOfSizes = Annotated[
    _Size | _Int | _Choice,
    Discriminator(_size_kind, custom_error_message=_OF_SIZES, custom_error_type=NO_SUCH_TYPE),
]
"""Of a hyperparameter that is a size: powers of two, unless it says otherwise."""
OwnRange = Annotated[
    _Float | _Size | _Int | _Choice,
    Discriminator(_own_kind, custom_error_message=_OF_OWN, custom_error_type=NO_SUCH_TYPE),
]
"""Of a hyperparameter of the user's own, which says what it is."""
