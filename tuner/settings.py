"""One setting, declared once: its name, type, bounds and default, and the flag that says it.

From a field's declaration follow the option of a command, what it is read from and written as, the
stored form, and the words for what a later launch changed.

    class Limits(Settings):
        max_time_s: Annotated[
            float | None, Field(gt=0), Flag("--max-time", "Seconds.", unit=NUMBER, none=None)
        ] = None
"""

from __future__ import annotations

import functools
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from tuner.errors import UsageError
from tuner.files.plain import explained

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # pydantic has no public name for it

NONE = "none"
"""What a flag says that lifts a limit."""

LONGEST_S = 100 * 365 * 24 * 3600.0
LARGEST_BYTES = 2.0**60

_DURATION = re.compile(
    r"^(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?$", re.ASCII
)
_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[KMGT]I?B)$", re.IGNORECASE | re.ASCII)
_SHARE = re.compile(r"^(?P<number>\d+(?:\.\d*)?|\.\d+) ?(?P<percent>%)?$", re.ASCII)
_UNITS = {
    f"{prefix}{i}B": (1024 if i else 1000) ** power
    for power, prefix in enumerate("KMGT", 1)
    for i in ("", "I")
}


def duration_s(text: str | None, flag: str) -> float | None:
    """Seconds of `90`, `90s`, `30m`, `2h` or `1h30m`.

    Raises:
        UsageError: none of these, or nothing at all.
    """
    if text is None:
        return None
    match = _DURATION.match(text.strip())
    hours, minutes, seconds = (
        (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    )
    total = hours * 3600 + minutes * 60 + seconds
    if not 0 < total < LONGEST_S:
        raise UsageError(f"{flag}: {text!r} is no duration; expected e.g. 90s, 30m or 1h30m")
    return total


def size_bytes(text: str, flag: str) -> int:
    """Bytes of `800MB`, `8GB` or `8GiB`.

    Raises:
        UsageError: none of these, or nothing at all.
    """
    match = _SIZE.match(text.strip())
    size = float(match["number"]) * _UNITS[match["unit"].upper()] if match else 0.0
    if not 1 <= size < LARGEST_BYTES:
        raise UsageError(
            f"{flag}: {text!r} is no amount of memory; expected e.g. 800MB, 8GB or 8GiB"
        )
    return int(size)


def number_of_share(text: str) -> float | None:
    """The number that `1%`, `1 %` or `0.01` names; None where it is no share."""
    match = _SHARE.match(text.strip())
    if match is None:
        return None
    return float(match["number"]) / (100 if match["percent"] else 1)


def above_zero(text: str | None, flag: str) -> float | None:
    """The number that a limit names.

    Raises:
        UsageError: no finite number above 0.
    """
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{flag}: {text!r} is no limit; expected a number above 0")
    return value


def exact(value: float) -> str:
    """A number as a flag takes it, with all the digits that tell it from others:
    `10`, `0.8123457`, `4294967295`.
    """
    return f"{value:.15g}"


def in_percent(share: float) -> str:
    """`1%`, as a flag takes it."""
    return f"{100 * share:.12g}%"


@dataclass(frozen=True, slots=True)
class Unit:
    """How a flag's text becomes a value, and a value such a text."""

    read: Callable[[str, str], Any]
    """Of the text and the flag's name; raises UsageError."""
    write: Callable[[Any], str]


NUMBER = Unit(above_zero, exact)
DURATION = Unit(duration_s, lambda seconds: f"{exact(seconds)}s")
HOURS = Unit(
    lambda text, flag: 3600.0 * (above_zero(text, flag) or 0.0),
    lambda seconds: exact(seconds / 3600),
)
"""Hours that are seconds in the field."""
SIZE = Unit(size_bytes, lambda size: f"{exact(size / 1e9)}GB")


@dataclass(frozen=True, slots=True)
class Flag:
    """How the command line says a field."""

    name: str
    """`--max-gpu-hours`; `accumulate` for a field that `--set accumulate=4` says, as its key in a
    study file; empty for one that no option sets."""
    help: str = ""
    metavar: str | None = None
    unit: Unit | None = None
    """None: the field's own type, a whole number, a choice or yes and no, is what is typed."""
    none: Any = ...
    """The value that 'none' stands for; ...: it takes no 'none'."""
    usual: str = ""
    """What stands for the flag where the value is None and there is no 'none'."""
    words: Callable[[Any], str] | None = None
    """In place of name and value."""

    @property
    def is_key(self) -> bool:
        """Whether `--set` says it."""
        return self.name[:1].isalpha()

    def read(self, typed: Any) -> Any:
        """The value of what was typed.

        Raises:
            UsageError: it names none; the sentence names the flag.
        """
        if self.unit is None:
            return typed
        if self.none is ...:
            return self.unit.read(typed, self.name)
        if typed.strip() in ({NONE, "0", "0s"} if self.none == 0 else {NONE}):
            return self.none
        try:
            return self.unit.read(typed, self.name)
        except UsageError as error:
            raise UsageError(f"{error}, or '{NONE}'") from None

    def says(self, value: Any) -> str:
        """The flag with a value, as it is typed: `--max-time 10`, `--no-prune`."""
        if value is None and self.usual:
            return self.usual
        if self.words is not None:
            return self.words(value)
        if self.is_key:
            return f"--set {self.name}={str(value).lower()}"
        if isinstance(value, bool):
            return f"--{'' if value else 'no-'}{self.name.removeprefix('--')}"
        if value is None or (self.none is not ... and value == self.none):
            return f"{self.name} {NONE}"
        if isinstance(value, Enum):
            value = value.value
        return f"{self.name} {value if self.unit is None else self.unit.write(value)}"


class _InOneLine(ModelMetaclass):
    """A value that a field does not take is one sentence for who wrote it, no list of errors."""

    def __call__(self, **given: Any) -> Any:
        for name, value in given.items():
            if isinstance(value, bool):
                _refuse_as_number(self, name, value)
        try:
            return super().__call__(**given)
        except ValidationError as error:
            raise UsageError(f"{self.__name__}: {explained(error)}") from None


class Settings(BaseModel, metaclass=_InOneLine):
    """A frozen record of settings.

    One is also what somebody says of them: only what is named counts then (`said`, `over`).

    Raises:
        UsageError: made with a value that a field does not take.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    first: ClassVar[tuple[str, ...]] = ()
    """The fields that are always stored; none named: all. One that came later is where it is not
    its default, so that what identifies something stays as it was before it existed."""

    def unusual(self) -> list[str]:
        """Fields that came later than `first`, and are not their default."""
        fields = type(self).model_fields
        later = [name for name in fields if name not in self.first]
        return [name for name in later if getattr(self, name) != fields[name].default]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, in the stored form."""
        return self.model_dump(include={*self.first, *self.unusual()} if self.first else None)

    def said(self) -> dict[str, Any]:
        """The fields that were named, with their values."""
        return {name: getattr(self, name) for name in type(self).model_fields if self.says(name)}

    def says(self, field: str) -> bool:
        """Whether a field was named."""
        return field in self.model_fields_set

    def over(self, there: Self) -> Self:
        """`there` with what was said in its place."""
        return there.model_copy(update=self.said())

    def but(self, **changes: Any) -> Self:
        """The same with other values, of the types of their fields."""
        return self.model_copy(update=changes)

    def without(self, fields: Collection[str]) -> Self:
        """The same, with these fields not said."""
        return type(self)(**{k: v for k, v in self.said().items() if k not in fields})

    def in_flags(self) -> dict[str, str]:
        """Each setting that has a flag, as it is typed, by its field."""
        return {name: flag.says(getattr(self, name)) for name, flag in flags(type(self)).items()}


def _refuse_as_number(model: Any, name: str, truth: bool) -> None:
    """Python takes True for 1: nobody means that who asks for so many of something."""
    takes = types_taken(model).get(name, frozenset())
    if bool not in takes and {int, float} & takes:
        expected = "a number such as 0.01" if float in takes else "a whole number such as 3"
        raise UsageError(f"{model.__name__}: {name}: {expected} is expected, got {truth}")


@functools.cache
def flags(model: type[Settings]) -> Mapping[str, Flag]:
    """The flags of a model's fields."""
    found = {}
    for name, field in model.model_fields.items():
        for each in field.metadata:
            if isinstance(each, Flag):
                found[name] = each
    return found


@functools.cache
def types_taken(model: type[Settings]) -> Mapping[str, frozenset[Any]]:
    """The types that each field takes, None's among them."""
    found = {}
    for name, field in model.model_fields.items():
        union = typing.get_origin(field.annotation) in (typing.Union, types.UnionType)
        found[name] = frozenset(typing.get_args(field.annotation) if union else [field.annotation])
    return found


def differing(before: Settings, after: Settings) -> list[str]:
    """The fields of which two records of one kind have other values."""
    return [
        name for name in type(before).model_fields if getattr(before, name) != getattr(after, name)
    ]


def changes(before: Settings, after: Settings) -> list[str]:
    """What a later launch changed, one phrase each: `--reruns 1 to --reruns 3`."""
    old, new = before.in_flags(), after.in_flags()
    return [f"{old[name]} to {new[name]}" for name in differing(before, after) if name in old]
