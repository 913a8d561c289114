"""Arguments of functions for notebooks and scripts: one of another kind than expected is one line,
not a TypeError from deep inside.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Any, ParamSpec, TypeVar, get_args

from tuner.errors import UsageError
from tuner.files.kinds import TEXT, Kind
from tuner.files.plain import excerpt

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _number(value: Any) -> bool:
    """Also one of numpy."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    """Also 3.0, which is what a row of a data frame makes of 3."""
    return _number(value) and value % 1 == 0


def _path(value: Any) -> bool:
    return isinstance(value, str | PathLike)


def _truth(value: Any) -> bool:
    """Whatever is no text: 'no' would be taken as true."""
    return not isinstance(value, str | bytes)


NUMBER = Kind(_number, "a number such as 0.01")
WHOLE = Kind(_whole, "a whole number such as 3")
PATH = Kind(_path, "a text or a path")
TRUTH = Kind(_truth, "True or False")
__all__ = ["NUMBER", "PATH", "TEXT", "TRUTH", "WHOLE", "refuse_truths", "takes_kinds"]


def refuse_truths(record: Any, *, within: str = "") -> None:
    """Python takes True for 1: nobody means that who asks for so many of something. Of a record's
    fields, and of those of records in it.

    Raises:
        UsageError: True or False where a field takes a number alone.
    """
    title = within or f"{type(record).__name__}: "
    for each in dataclasses.fields(record):
        value = getattr(record, each.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            refuse_truths(value, within=f"{title}{each.name}.")
        elif isinstance(value, bool):
            takes = _types_taken(record.__class__)[each.name]
            if bool not in takes and {int, float} & takes:
                expected = NUMBER if float in takes else WHOLE
                raise UsageError(
                    f"{title}{each.name}: {expected.expected} is expected, got {value}"
                )


@functools.lru_cache(maxsize=64)
def _types_taken(record: type) -> dict[str, set[Any]]:
    """The types that each field of a record takes."""
    hints = typing.get_type_hints(record)
    return {
        each.name: {hints[each.name], *get_args(hints[each.name])}
        for each in dataclasses.fields(record)
    }


def takes_kinds(
    **kinds: Kind,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """A function whose arguments are checked, by their names; None is one where it is the default.

    Raises, when it is called:
        UsageError: an argument of another kind.
    """

    def checks(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        signature = inspect.signature(function)
        may_be_none = {n for n, each in signature.parameters.items() if each.default is None}

        @functools.wraps(function)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:  # which Python says with the function's name
                raise TypeError(f"{function.__name__}(): {error}") from None
            for name, value in given.items():
                kind = kinds.get(name)
                if kind is None or kind.holds(value) or (value is None and name in may_be_none):
                    continue
                raise UsageError(
                    f"{function.__name__}: {name}: {kind.expected} is expected, got {_words(value)}"
                )
            return function(*args, **kwargs)

        return checked

    return checks


def _words(value: object) -> str:
    """A plain value, and the type of any other: it may be large, or hold a password."""
    if value is None or isinstance(value, str | int | float):
        return excerpt(repr(value))
    return f"a value of type {type(value).__name__}"
