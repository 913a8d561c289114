"""What a class of the user's own can be told: the arguments of its constructor."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.own import is_named

if TYPE_CHECKING:
    from torch import nn

Plain = str | int | float | bool


class Kind(StrEnum):
    """What values an argument takes, as far as its annotation or its default says."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "text"
    CHOICE = "choice"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One of a constructor's."""

    name: str
    kind: Kind
    choices: tuple[Plain, ...] = ()
    """Of a `Literal`, without None."""
    required: bool = False
    default: Any = None
    """None too where it is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructor:
    """A class, and what it can be built with beside the shapes."""

    class_name: str
    about: str
    """The first sentence of its own docstring; empty where it has none."""
    arguments: tuple[Argument, ...]
    """Without hidden size and dropout."""
    hidden_size: Argument | None
    """None where it does not take one."""
    dropout: Argument | None


def constructor_of(reference: str) -> Constructor:
    """Read the class that an import string, or `path/to/file.py:Class`, names.

    A class with the interface of darts' TSMixer is told what darts tells it; beside its own
    arguments, those of darts that may be searched over count.

    Raises:
        UsageError: as `tuner.models.own.load_class`, or a class without a readable signature.
    """
    from tuner.models.darts_interface import has_darts_interface
    from tuner.models.own import load_class

    model_class = load_class(reference)
    try:
        parameters = dict(inspect.signature(model_class).parameters)
    except ValueError:
        raise UsageError(
            f"{reference}: its constructor has no signature that can be read; write the study file "
            "by hand, as docs/own-model.md shows"
        ) from None
    if has_darts_interface(model_class):
        given = _given_by_darts(model_class)
        arguments = [each for each in _of_darts() if each.name in given]
    else:
        first = next(iter(parameters.values()), None)
        positional = first is not None and first.kind in _POSITIONAL
        given = {first.name: None} if first is not None and positional else {}
        arguments = []
    hints = _hints(model_class)
    for name, parameter in parameters.items():
        if is_named(parameter) and name not in given and name not in ("hidden_size", "dropout"):
            arguments.append(_argument(parameter, hints))
    return Constructor(
        class_name=model_class.__name__,
        about=_about(model_class),
        arguments=tuple(arguments),
        hidden_size=_taken(model_class, "hidden_size", Kind.INT),
        dropout=_taken(model_class, "dropout", Kind.FLOAT),
    )


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_TYPES: Mapping[type, Kind] = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, str: Kind.TEXT}


def _given_by_darts(model_class: type[nn.Module]) -> Mapping[str, Any]:
    """What such a class is told; of the shapes only the names matter here."""
    from tuner.models.darts_interface import darts_arguments

    shapes = ModelShapes(
        input_size=1, horizon=1, n_targets=1, n_past=0, n_future=0, n_static=0, n_quantiles=1
    )
    return darts_arguments(model_class, shapes, {"hidden_size": 1})


def _of_darts() -> tuple[Argument, ...]:
    """Those that it can be told something else for, by the study file."""
    from tuner.models.darts_interface import NUM_BLOCKS

    return (
        Argument(name="num_blocks", kind=Kind.INT, default=NUM_BLOCKS),
        Argument(name="normalize_before", kind=Kind.BOOL, default=False),
        Argument(name="activation", kind=Kind.CHOICE, choices=("ReLU", "GELU"), default="ReLU"),
        Argument(name="norm_type", kind=Kind.TEXT, default="LayerNorm"),
    )


def _argument(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Argument:
    required = parameter.default is parameter.empty
    default = None if required else parameter.default
    hint = hints.get(parameter.name)
    kind, choices = _kind(hint)
    if kind is Kind.UNKNOWN or isinstance(default, bool):
        by_default = _TYPES.get(type(default), Kind.OTHER)
        kind = by_default if default is not None else kind
    return Argument(
        name=parameter.name, kind=kind, choices=choices, required=required, default=default
    )


def _kind(hint: Any) -> tuple[Kind, tuple[Plain, ...]]:
    if hint is None:
        return Kind.UNKNOWN, ()
    if get_origin(hint) in (Union, UnionType):
        rest = [each for each in get_args(hint) if each is not NoneType]
        return _kind(rest[0]) if len(rest) == 1 else (Kind.OTHER, ())
    if get_origin(hint) is Literal:
        choices = tuple(each for each in get_args(hint) if each is not None)
        plain = len({type(each) for each in choices}) == 1 and type(choices[0]) in _TYPES
        return (Kind.CHOICE, choices) if plain else (Kind.OTHER, ())
    return _TYPES.get(hint, Kind.OTHER) if isinstance(hint, type) else Kind.OTHER, ()


def _hints(model_class: type[nn.Module]) -> Mapping[str, Any]:
    """Annotations by name; those that name what only a type checker imports stay unread."""
    constructor: Callable[..., Any] = model_class.__init__
    try:
        return typing.get_type_hints(constructor)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        by_name = {each.__name__: each for each in _TYPES}
        written: Mapping[str, Any] = getattr(constructor, "__annotations__", {})
        return {
            name: by_name.get(each, object) if isinstance(each, str) else each
            for name, each in written.items()
        }


def _taken(model_class: type[nn.Module], name: str, kind: Kind) -> Argument | None:
    """One of the two that every class may take; also where it goes on to a base by `**kwargs`."""
    for each in model_class.__mro__:
        if "__init__" not in vars(each):
            continue
        parameters = inspect.signature(vars(each)["__init__"]).parameters
        if name in parameters and is_named(parameters[name]):
            found = _argument(parameters[name], {})
            usable = type(found.default) in (int, float)
            return Argument(name=name, kind=kind, default=found.default if usable else None)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return None
        if each.__module__.startswith("torch."):
            break
    return Argument(name=name, kind=kind)


def _about(model_class: type[nn.Module]) -> str:
    written = vars(model_class).get("__doc__") or ""
    paragraph = " ".join(inspect.cleandoc(written).partition("\n\n")[0].split())
    sentence, dot, _ = paragraph.partition(". ")
    return sentence if dot else paragraph.removesuffix(".")
