"""TOML files with line numbers: read one,
and turn what is wrong with it into one line for a person.

`tomllib` keeps no positions, so a second pass over the (already valid) text records the line of
every key.
"""

from __future__ import annotations

import bisect
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.errors import UsageError, guess
from tuner.files.durable import open_plain
from tuner.files.plain import DEPTH, check_plain, excerpt

# On which line of a TOML file each of its keys stands.


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1 on, of each key,
    table and element of `text`, which `tomllib` has accepted.
    """
    return _Scanner(text).scan()


class _Scanner:
    """Walks TOML text that `tomllib` has accepted and notes the line on which each key starts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends = [found.start() for found in re.finditer("\n", text)]
        self._at = 0
        self._lines: dict[tuple[str, ...], int] = {}
        self._tables: dict[tuple[str, ...], int] = {}

    def scan(self) -> dict[tuple[str, ...], int]:
        table: tuple[str, ...] = ()
        while self._skip_blank():
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._statement(table)
        return self._lines

    def _skip_blank(self) -> bool:
        found = re.compile(r"(?:\s|#[^\n]*)*").match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _note(self, path: tuple[str, ...], at: int) -> None:
        line = bisect.bisect_left(self._ends, at) + 1
        for length in range(len(path), 0, -1):
            if path[:length] in self._lines:  # and so are the tables around it
                break
            self._lines[path[:length]] = line

    def _header(self) -> tuple[str, ...]:
        start = self._at
        array = self._text.startswith("[[", start)
        self._at += 2 if array else 1
        names = self._key()
        path: tuple[str, ...] = ()
        for position, name in enumerate(names):
            path = (*path, name)
            is_last = position == len(names) - 1
            if array and is_last:
                self._tables[path] = self._tables.get(path, -1) + 1
            if path in self._tables:
                path = (*path, str(self._tables[path]))
        self._note(path, start)
        self._at = self._text.index("]", self._at) + (2 if array else 1)
        return path

    def _statement(self, table: tuple[str, ...]) -> None:
        start = self._at
        path = (*table, *self._key())
        self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._value(path)

    def _key(self) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            self._skip_blank()
            if self._text[self._at] in "\"'":
                start = self._at
                self._skip_string()
                names.append(str(tomllib.loads(f"k = {self._text[start : self._at]}")["k"]))
            else:
                found = re.compile(r"[A-Za-z0-9_-]+").match(self._text, self._at)
                names.append(found.group() if found else "")
                self._at = found.end() if found else self._at + 1
            self._skip_blank()
            if not self._text.startswith(".", self._at):
                return tuple(names)
            self._at += 1

    def _skip_string(self) -> None:
        patterns = (r'"""(?:\\.|.)*?"{3,5}', r"'''.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^']*'")
        for pattern in patterns:
            found = re.compile(pattern, re.DOTALL).match(self._text, self._at)
            if found:
                self._at = found.end()
                return

    def _value(self, path: tuple[str, ...]) -> None:
        self._skip_blank()
        first = self._text[self._at]
        if first in "\"'":
            self._skip_string()
        elif first in "[{":
            self._at += 1
            self._container(path, "]" if first == "[" else "}")
        else:
            found = re.compile(r"[^,\]}#\n]*").match(self._text, self._at)
            self._at = found.end() if found else self._at + 1

    def _container(self, path: tuple[str, ...], end: str) -> None:
        position = 0
        while self._skip_blank() and not self._text.startswith(end, self._at):
            if self._text.startswith(",", self._at):
                self._at += 1
            elif end == "}":
                self._statement(path)
            else:
                self._note((*path, str(position)), self._at)
                self._value((*path, str(position)))
                position += 1
        self._at += 1


Model = TypeVar("Model", bound=BaseModel)


NO_SUCH_TYPE = "no_such_type"
BOUNDS = ("less_than", "less_than_equal", "greater_than", "greater_than_equal", "finite_number")
"""The kind of a model's error about a table that does not say which of several it is."""

AT_MOST_BYTES = 1 << 20
"""Of a TOML file: more than any that a person writes."""

_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEPTH},}}")
"""A dotted key beyond all nesting, which `tomllib` takes hours for;
in a text it would be a strange sentence."""

_OWN_KEY = re.compile(r"((?:[A-Za-z0-9_]+\.)*[A-Za-z0-9_]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlDocument:
    """A parsed TOML file: its data, and the line (from 1) on which each key stands."""

    data: dict[str, Any]
    path: Path
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def line(self, key_path: tuple[str, ...]) -> int | None:
        """The line of a key or table; elements of arrays
        are named by their index ("0", "1", ...).
        """
        return self.lines.get(tuple(str(part) for part in key_path))

    def where(self, key_path: tuple[str, ...]) -> str:
        """`FILE, line N` of the key, or of the nearest table around it;
        only `FILE` where there is none.
        """
        for length in range(len(key_path), 0, -1):
            line = self.line(key_path[:length])
            if line is not None:
                return f"{self.path}, line {line}"
        return str(self.path)


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
        lines = lines_of(text)
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
    return TomlDocument(data=data, path=path, lines=lines)


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
    places = [
        _key_path(document.data, detail["loc"], missing=detail["type"] == "missing")
        for detail in details
    ]
    unknown_first = sorted(
        range(len(details)),
        key=lambda i: (details[i]["type"] != "extra_forbidden", document.line(places[i]) or 0),
    )
    chosen = unknown_first[0]
    # Of something that may be of several kinds, a bound of its own kind says more than the others.
    for i in unknown_first:
        if places[i] == places[chosen] and details[i]["type"] in BOUNDS:
            chosen = i
            break
    raise UsageError(_explain(document, model_class, details[chosen], places[chosen]))


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
    origin, arguments = get_origin(annotation), get_args(annotation)
    names: list[str] = []
    if origin is Annotated:
        names = _field_names(arguments[0], location)
    elif origin in {Union, UnionType}:
        names = _field_names_of_union(arguments, location)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = {
            info.alias or name: info.annotation for name, info in annotation.model_fields.items()
        }
        if not location:
            names = list(fields)
        elif location[0] in fields:
            names = _field_names(fields[str(location[0])], location[1:])
        elif annotation.model_config.get("extra") == "allow":
            hints = get_type_hints(annotation, include_extras=True)
            names = _field_names(hints["__pydantic_extra__"], location)
    elif arguments and location:
        # dict[str, X], list[X], tuple[X, ...]: X is the last type among the arguments.
        names = _field_names([a for a in arguments if a is not Ellipsis][-1], location[1:])
    return names


def _field_names_of_union(members: Sequence[Any], location: Sequence[str | int]) -> list[str]:
    bare = [get_args(m)[0] if get_origin(m) is Annotated else m for m in members]
    models = [m for m in bare if isinstance(m, type) and issubclass(m, BaseModel)]
    # pydantic names the member by its tag, or by its class where there is no tag.
    for model in models:
        tags = {model.__name__}
        for info in model.model_fields.values():
            if get_origin(info.annotation) is Literal:
                tags.update(str(tag) for tag in get_args(info.annotation))
        if location and str(location[0]) in tags:
            return _field_names(model, location[1:])
    for member in members:
        names = _field_names(member, location)
        if names:
            return names
    return []


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
