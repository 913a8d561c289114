"""The parameters of a signature that are given by their names."""

from __future__ import annotations

import inspect

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_named(parameter: inspect.Parameter) -> bool:
    """Not so `*args` and `**kwargs`, which take what has no name of its own."""
    return parameter.kind in _NAMED
