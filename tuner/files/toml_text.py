"""Values and keys as TOML writes them."""

from __future__ import annotations

import json
import re
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
LEAST_WRITTEN_OUT = 0.02
"""Smaller numbers are written with an exponent."""


def toml_key(name: str) -> str:
    """A key; in quotes where it needs them."""
    return name if _BARE.fullmatch(name) else toml_value(name)


def toml_value(value: Any) -> str:
    """Text, a number, true or false, a list, or an inline table without its nulls.

    Raises:
        ValueError: a list holds a null, which TOML does not have, or a number is not finite.
        TypeError: it is nothing that TOML has.
    """
    if isinstance(value, list | tuple):
        if None in value:
            raise ValueError("a list holds a null, which TOML does not have")
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        pairs = (f"{toml_value(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + ", ".join(pairs) + " }"
    # As in JSON, but for characters beyond 16 bits, which JSON writes as a pair that TOML refuses,
    # and DEL.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")


def short_number(value: float) -> str:
    """A finite number as a person writes it, the same when it is read: `1e-4`, not `0.0001`."""
    text = repr(value)
    if isinstance(value, int) or value == 0 or abs(value) >= LEAST_WRITTEN_OUT:
        return text
    mantissa, _, exponent = f"{value:e}".partition("e")
    short = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return short if float(short) == value else text
