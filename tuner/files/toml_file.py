"""TOML files with line numbers: read one,
and turn what is wrong with it into one line for a person.

`tomllib` keeps no positions. A key stands on the first line up to which the text has it, so the
line is found by reading beginnings of the text: only where something is wrong.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tuner.errors import UsageError, guess
from tuner.files.durable import open_plain
from tuner.files.plain import DEPTH, check_plain, excerpt

Model = TypeVar("Model", bound=BaseModel)


NO_SUCH_TYPE = "no_such_type"
BOUNDS = ("less_than", "less_than_equal", "greater_than", "greater_than_equal", "finite_number")
"""The kind of a model's error about a table that does not say which of several it is."""

MOST_COMPARED = 20
"""Of many things that are wrong, so many are looked through for the one that stands first."""

AT_MOST_BYTES = 1 << 20
"""Of a TOML file: more than any that a person writes."""

_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEPTH},}}")
"""A dotted key beyond all nesting, which `tomllib` takes hours for;
in a text it would be a strange sentence."""

_OWN_KEY = re.compile(r"((?:[A-Za-z0-9_]+\.)*[A-Za-z0-9_]+): (.*)", re.DOTALL)


_ENDS = ("", "]", '"""', "'''", "]]", '"""]', "''']", "]]]")
"""What closes the array or the text in whose midst a beginning of a file stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlDocument:
    """A parsed TOML file: its data, and the text that it was parsed from."""

    data: dict[str, Any]
    path: Path
    text: str = ""

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """The line, from 1 on, of a key or table; elements of arrays
        are named by their index ("0", "1", ...).
        """
        lines = self.text.split("\n")

        def is_there(count: int) -> bool:
            return _holds(_beginning(lines[:count]), key_path)

        first = bisect.bisect_left(range(len(lines) + 1), True, key=is_there)
        return first if first <= len(lines) else None

    def where(self, key_path: tuple[str, ...]) -> str:
        """`FILE, line N` of the key, or of the nearest table around it;
        only `FILE` where there is none.
        """
        for length in range(len(key_path), 0, -1):
            line = self.line(key_path[:length])
            if line is not None:
                return f"{self.path}, line {line}"
        return str(self.path)


def _beginning(lines: Sequence[str]) -> dict[str, Any]:
    """What these first lines of a valid file hold; of a value that goes on, what is there of it."""
    for count in range(len(lines), 0, -1):
        begun = "\n".join([*lines[:count], ""])
        for end in _ENDS:
            with contextlib.suppress(tomllib.TOMLDecodeError):
                return tomllib.loads(begun + end)
    return {}


def _holds(data: object, key_path: Sequence[str]) -> bool:
    for part in key_path:
        if isinstance(data, list):
            data = dict(enumerate(data))
        if not isinstance(data, dict) or part not in map(str, data):
            return False
        data = data[part if part in data else int(part)]
    return True


def read_toml(path: str | Path) -> TomlDocument:
    """Read and parse a TOML file.

    Raises:
        UsageError: no such file, a folder, too large, not UTF-8, a syntax error (with its line),
            nested too deep, or a number that is not finite or beyond 64 bits.
    """
    path = Path(path)
    try:
        with open_plain(path, or_fed=True) as file:
            raw = file.read(AT_MOST_BYTES + 1)
        if len(raw) > AT_MOST_BYTES:
            raise UsageError(
                f"{path}: holds more than {AT_MOST_BYTES >> 20} MiB; no file of ours does, name "
                "another"
            )
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file; give the path of an existing TOML file") from None
    except IsADirectoryError:
        raise UsageError(f"{path}: is a folder; give the path of a TOML file in it") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{path}, line {line}: is not UTF-8 text; save the file as UTF-8"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    text = text.replace("\r\n", "\n")
    try:
        if long := _LONG_KEY.search(text):
            line = text.count("\n", 0, long.start()) + 1
            raise UsageError(f"{path}, line {line}: a key of more than {DEPTH} parts; nest less")
        data = tomllib.loads(text)
        check_plain(data)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(_syntax_message(path, text, str(error))) from None
    except RecursionError:
        raise UsageError(
            f"{path}: tables and lists are nested more than {DEPTH} deep; nest less"
        ) from None
    except ValueError as error:
        raise UsageError(
            f"{path}: cannot be used: {excerpt(str(error), at_most=200)}; correct it"
        ) from None
    return TomlDocument(data=data, path=path, text=text)


def validate(document: TomlDocument, model_class: type[Model]) -> Model:
    """The document as a model. TOML is typed, so a number in quotes is not a number here.

    Raises:
        UsageError: the first thing that is wrong, as one line with file, line, key and remedy.
            Unknown keys come first, because a misspelt key is also the cause of the missing one.
    """
    try:
        return model_class.model_validate_json(json.dumps(document.data, default=str), strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)

    def place(detail: ErrorDetails) -> tuple[str, ...]:
        return _key_path(document.data, detail["loc"], missing=detail["type"] == "missing")

    unknown = [each for each in details if each["type"] == "extra_forbidden"]
    near_top = (unknown or details)[:MOST_COMPARED]
    first = min(near_top, key=lambda each: document.line(place(each)) or 0)
    # Of something that may be of several kinds, a bound of its own kind says more than the others.
    bounds = [each for each in details if each["type"] in BOUNDS and place(each) == place(first)]
    chosen = (bounds or [first])[0]
    raise UsageError(_explain(document, model_class, chosen, place(chosen)))


def _syntax_message(path: Path, text: str, problem: str) -> str:
    found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", problem)
    if found is None:
        return f"{path}: is not valid TOML: {excerpt(problem, at_most=200)}"
    line = found.group(1) or str(text.rstrip("\n").count("\n") + 1)
    what = excerpt(problem[: found.start()], at_most=200)
    return f"{path}, line {line}: is not valid TOML: {what[:1].lower()}{what[1:]}"


def _key_path(
    data: object, location: Sequence[str | int], *, missing: bool = False
) -> tuple[str, ...]:
    """The keys as the file has them, and with `missing` the one that it lacks: pydantic's location
    also names the members of unions, the file does not.
    """
    keys: list[str] = []
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(data, dict) and (part in data or (last and missing)):
            keys.append(str(part))
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int):
            keys.append(str(part))
            data = data[part] if part < len(data) else None
    return tuple(keys)


def _explain(
    document: TomlDocument,
    model_class: type[BaseModel],
    detail: ErrorDetails,
    keys: tuple[str, ...],
) -> str:
    """One pydantic error in the words of the file: file, line, key, what is expected."""
    kind, context = detail["type"], detail.get("ctx", {})
    where, key = document.where(keys), excerpt(".".join(keys), at_most=200)
    if kind == "extra_forbidden":
        known = _field_names(model_class, detail["loc"][:-1])
        near = guess(keys[-1], known)
        problem = f"unknown key {key!r}{near}; expected one of: {', '.join(sorted(known))}"
    elif kind == "missing" and keys[-1].isdigit():
        problem = f"key {'.'.join(keys[:-1])!r} has too few elements, got {_shown(detail['input'])}"
    elif kind == "missing":
        near = guess(keys[-1], _names_there(document.data, keys[:-1]))
        problem = f"missing key {key!r}{near.replace('did you mean', 'is it')}; add it"
    elif kind in {"union_tag_not_found", "union_tag_invalid"}:
        tag = str(context["discriminator"]).strip("'")
        where = document.where((*keys, tag))
        problem = f"missing key {f'{key}.{tag}'!r}; add it"
        if kind == "union_tag_invalid":
            expected = context["expected_tags"]
            problem = f"key {f'{key}.{tag}'!r} is {context['tag']!r}; expected one of: {expected}"
    elif kind == NO_SUCH_TYPE:
        near = guess(keys[-1], _field_names(model_class, detail["loc"][:-1]))
        rule = detail["msg"].removeprefix("Input ")
        problem = f"key {key!r}{near} {rule}"
    elif kind in {"value_error", "assertion_error"}:
        return _explain_own(document, keys, str(context["error"]))
    else:
        rule = re.sub(r"^\w+ should", "should", detail["msg"]).replace(" after validation", "")
        rule = rule.replace("should be an object", "should be a table")  # TOML's word
        problem = f"key {key!r} {rule[:1].lower()}{rule[1:]}, got {_shown(detail['input'])}"
    return f"{where}: {problem}"


def _names_there(data: object, keys: Sequence[str]) -> list[str]:
    """The keys of a table of the file."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return [str(name) for name in data] if isinstance(data, dict) else []


def _explain_own(document: TomlDocument, keys: tuple[str, ...], told: str) -> str:
    """What a model itself says of a table; it may begin with the key of what is in that table."""
    if found := _OWN_KEY.match(told):
        inner = (*keys, *found.group(1).split("."))
        return f"{document.where(inner)}: key {excerpt('.'.join(inner))!r}: {found.group(2)}"
    key = excerpt(".".join(keys), at_most=200)
    return (
        f"{document.where(keys)}: key {key!r}: {told}" if key else f"{document.where(keys)}: {told}"
    )


def _shown(value: Any) -> str:
    """A value as the file may have it, cut where it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return excerpt(text)


def _field_names(annotation: Any, location: Sequence[str | int]) -> list[str]:
    """Names of the keys allowed in the table at `location`, or none where the models do not say."""
    models = _models_in(annotation)
    if not location:
        return list(_fields(models[0])) if models else []
    part, rest = str(location[0]), location[1:]
    for model in models:
        if part in _tags(model):
            return _field_names(model, rest)
    for model in models:
        if part in _fields(model):
            return _field_names(_fields(model)[part].annotation, rest)
        if model.model_config.get("extra") == "allow":
            hints = get_type_hints(model, include_extras=True)
            return _field_names(hints["__pydantic_extra__"], rest)
    return _field_names(annotation, rest)  # the key of a table, or a place in a list


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may be, or that it may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_in(each)]


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _tags(model: type[BaseModel]) -> set[str]:
    """What pydantic names a member of a union by: its tag, or its class where there is no tag."""
    kinds = [info.annotation for info in model.model_fields.values()]
    literals = [kind for kind in kinds if get_origin(kind) is Literal]
    return {model.__name__, *(str(tag) for kind in literals for tag in get_args(kind))}


# Values and keys as TOML writes them.


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
