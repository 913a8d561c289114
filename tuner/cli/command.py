"""Commands whose options are the fields of a record: parsed, they are at once one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

Options = TypeVar("Options")


def takes(options: type[Options]) -> Callable[[Callable[[Options], int]], Callable[..., int]]:
    """Make a command of a function of `options`:
    a dataclass whose fields are annotated as typer wants parameters.
    """
    fields = get_type_hints(options, include_extras=True)
    parameters = [
        each.replace(annotation=fields[each.name])
        for each in inspect.signature(options).parameters.values()
    ]

    def command_of(function: Callable[[Options], int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(**given: Any) -> int:
            return function(options(**given))

        command.__annotations__ = fields
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return command_of
