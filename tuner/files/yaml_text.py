"""Plain data as YAML that every reader takes for the same data.

Each text is in double quotes, with all that is not ASCII escaped, so none of it can be read as a
number, a key, a line or a tag. Libraries leave quotes out where their own version of YAML needs
none: PyYAML writes 1e3, which Kubernetes reads as a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Data = Mapping[str, "Data"] | Sequence["Data"] | str | int | bool

_KEY = re.compile(r"^[A-Za-z][A-Za-z0-9._/-]*$")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Keys that some version of YAML reads as something else than a text."""
_ESCAPED = {'"': '\\"', "\\": "\\\\"}


def yaml_text(data: Data) -> str:
    """One document, without what separates it from others.

    Raises:
        ValueError: a key that would need quotes, or a text with half a surrogate pair.
    """
    return "".join(f"{line}\n" for line in _lines(data))


def _lines(data: Data) -> Iterator[str]:
    if not _nested(data):
        yield _scalar(data)
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from _entry(f"{_key(key)}:", value, indent="  ")
    elif isinstance(data, Sequence) and not isinstance(data, str):
        for value in data:
            lines = list(_lines(value)) if _nested(value) else [_scalar(value)]
            yield f"- {lines[0]}"
            yield from (f"  {line}" for line in lines[1:])


def _key(key: str) -> str:
    if not _KEY.match(key):
        raise ValueError(f"{key!r} is no key of a manifest")
    return f'"{key}"' if key.lower() in _WORDS else key


def _entry(head: str, value: Data, *, indent: str) -> Iterator[str]:
    if not _nested(value):
        yield f"{head} {_scalar(value)}"
        return
    yield head
    yield from (f"{indent}{line}" for line in _lines(value))


def _nested(value: Data) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)


def _scalar(value: Data) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_character, value)) + '"'
    return "{}" if isinstance(value, Mapping) else "[]"


def _character(character: str) -> str:
    code = ord(character)
    if character in _ESCAPED:
        return _ESCAPED[character]
    if 0x20 <= code < 0x7F:  # noqa: PLR2004 - what ASCII prints
        return character
    if 0xD800 <= code < 0xE000:  # noqa: PLR2004 - halves of surrogate pairs
        raise ValueError("a text holds half a surrogate pair")
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"  # noqa: PLR2004
