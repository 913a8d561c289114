"""Data that others wrote, in files and shared databases: read within limits, and harmless to show.

Whatever is read with `read_json` is plain, finite and not nested deep. Text that will be shown
passes `harmless`, names are refused by `Label`: neither holds a character that a terminal obeys.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from tuner.display.text import shown

DEPTH = 32
"""How deep tables and lists may be nested."""

LARGEST = 2**63 - 1
"""The largest whole number that databases and TOML have."""

LONGEST_NAME = 512
"""Characters of a name that every column of our tables and of Optuna's takes."""

CONTAINERS = 1_000_000
"""Tables and lists in one document: the empty ones cost the most memory for a byte of text."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# C0 and C1 controls, line and paragraph separators, what turns the direction of writing, halves of
# surrogate pairs.
_OBEYED = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_PLAIN = frozenset((str, bool, type(None)))
_UNSAFE = re.compile(f"[{_OBEYED}]")
_UNSAFE_IN_PROSE = re.compile(f"(?![\n\t])[{_OBEYED}]")


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading data raises that is not what it is taken for."""


STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class Strict(BaseModel):
    """A table whose keys are all known.

    As in all models of ours, its validator is built when it is first used (`defer_build`): a
    command does not wait for those that it never needs.
    """

    model_config = STRICT


class Loose(BaseModel):
    """A table of which only the known keys are taken."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, defer_build=True)


def harmless(text: str) -> str:
    """`text` without what a terminal would obey; line ends and tabs stay."""
    return (
        text if text.isascii() and text.isprintable() else _UNSAFE_IN_PROSE.sub(REPLACEMENT, text)
    )


def harmless_data(value: Any) -> Any:
    """Plain data with every text in it, keys included, made harmless."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        return {harmless(str(key)): harmless_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [harmless_data(inner) for inner in value]
    return value


def excerpt(text: str, *, at_most: int = 60) -> str:
    """Text of others within one line of ours: `shown`, and cut where it is long."""
    return shown(text if len(text) <= at_most else f"{text[:at_most]}...")


def refuse_long_name(name: str, *, of: str = "") -> None:
    """Raises ValueError for a name that no column takes; `of` is what the thing is."""
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"{of}{excerpt(name)}: has a name of {len(name)} characters; expected at most "
            f"{LONGEST_NAME}, which is what databases take: give it a shorter name"
        )


def check_label(value: str) -> str:
    """The name. Raises ValueError where it holds a control character."""
    if _UNSAFE.search(value):
        raise ValueError("holds a control character; a name has none")
    return value


def _plain(value: Any) -> Any:
    check_plain(value)
    return harmless_data(value)


Label = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(check_label)]
"""A name: of a study, a column, a device."""

Prose = Annotated[str, Field(max_length=20_000), AfterValidator(harmless)]
"""Text for people, of one line or several."""

Text = Annotated[str, AfterValidator(harmless)]

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{1,128}$")]

PlainTable = Annotated[dict[str, Any], BeforeValidator(_plain)]
"""A table of whatever is plain."""

Count = Annotated[int, Field(ge=0, le=LARGEST)]


def read_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is none, is nested too deep, holds too much, or a number that is not finite
            or beyond 64 bits.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") > CONTAINERS:
        raise ValueError(f"it holds more than {CONTAINERS:,} tables and lists")
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError:
        data = _read_slowly(text)
    check_plain(data)
    return data


def digest_of(data: Any) -> str:
    """SHA-256 of plain data as JSON, in whatever order its tables were made."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def in_json(record: object, *names: str, **called: str) -> dict[str, Any]:
    """Fields of a record as JSON has them: `names` by their own, others as they are `called` there
    (`group="membership.group"`). Of no record each is None.
    """
    found = {}
    for key, path in ({name: name for name in names} | called).items():
        value: Any = record
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        found[key] = _in_json(value)
    return found


def _in_json(value: Any) -> Any:
    for itself in ("as_estimate", "as_dict"):
        if hasattr(value, itself):
            return getattr(value, itself)()
    if isinstance(value, Mapping):
        return {key: _in_json(each) for key, each in value.items()}
    return [_in_json(each) for each in value] if isinstance(value, tuple | list) else value


def check_plain(data: Any) -> None:
    """Raises ValueError where parsed data is nested too deep or holds a number that is not finite
    or beyond 64 bits.
    """
    level = [data]
    for _ in range(DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if type(value) in _PLAIN:
                continue
            if isinstance(value, float):
                if not math.isfinite(value):
                    raise ValueError(f"{value} is no finite number")
            elif isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list | tuple):
                below.extend(value)
            elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
                raise ValueError("it holds a whole number beyond 64 bits")
        if not below:
            return
        level = below
    raise ValueError(f"it is nested more than {DEPTH} deep")


def explained(error: Exception) -> str:
    """What is wrong with data that a model refused,
    in one line; other exceptions in their own words.
    """
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        named = [str(part) for part in first["loc"]]
        # Of a union the message says what it may be.
        where = ".".join(excerpt(part) for part in named if not part.startswith("literal["))
        what = re.sub(r"^(Input|String|Value error,)\s*", "", first["msg"])
        given = (
            ""
            if first["type"] in {"missing", "value_error"}
            else f", got {excerpt(repr(first['input']))}"
        )
        return excerpt(f"{where}: {what}{given}" if where else f"{what}{given}", at_most=300)
    if isinstance(error, KeyError):
        return f"it lacks {excerpt(str(error))}"
    return excerpt(str(error) or type(error).__name__, at_most=300)


def _read_slowly(text: str | bytes) -> Any:
    """As Python's own parser has it, which takes more than UTF-8 and says what is wrong."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEPTH} deep") from None


def _whole(text: str) -> int:
    if len(text) > len(str(-LARGEST)):
        raise ValueError("it holds a whole number beyond 64 bits")
    return int(text)
