"""Ranges proposed for the arguments of a class, by their kinds and names: where to begin."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.config import OF_THE_TASK, OF_TRAINING
from tuner.files.plain import check_plain, excerpt
from tuner.models.constructor import Argument, Constructor, Kind, Plain

LARGEST = 1_000_000
"""Larger defaults are no hyperparameters."""

LEAST_POWER = 8
"""From here on, a default that is a power of two is taken for a size."""

WIDTHS = ("hidden", "channel", "width", "dim", "size", "units", "features", "filters")
DEPTHS = ("depth", "layer", "block", "stage")
SHARES = ("momentum", "ratio", "fraction", "prob", "share", "decay", "rate")
KEPT = {"seed", "random", "eps", "epsilon"}
"""Words of names that are set once and not searched over; the others are parts of names."""

RESERVED = (
    "learning_rate",
    "weight_decay",
    "batch_size",
    *OF_THE_TASK,
    *OF_TRAINING,
    "shapes",
    "own",
)
"""Names that mean something else in a study file: the class is not given them."""

WIDTH, DEPTH, DROPOUT = 64, 2, 0.1
"""Guesses where a class gives no default; hidden size and dropout of the built-in studies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A hyperparameter of the study."""

    name: str
    default: Plain
    space: Mapping[str, Any]
    """Its table in the study file, without the reason."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A setting of the network that stays as it is."""

    name: str
    comment: str
    value: Any = None
    """None: TOML cannot say it, so the line is a comment."""
    to_fill: bool = False
    """Whether the user must put a value there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """For all that a class can be told."""

    sizes: tuple[Searched, ...]
    """Hidden size and dropout, where the class takes them."""
    searched: tuple[Searched, ...]
    left: tuple[Left, ...]

    @property
    def to_fill(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.left if each.to_fill)


def propose(constructor: Constructor) -> Proposal:
    """A range for each argument that has an obvious one; the others are left as they are."""
    searched: list[Searched] = []
    left: list[Left] = []
    for argument in constructor.arguments:
        found = _for(argument)
        if isinstance(found, Searched):
            searched.append(found)
        else:
            left.append(found)
    sizes = [_dropout(constructor.dropout)] if constructor.dropout else []
    sizes += [_hidden_size(constructor.hidden_size)] if constructor.hidden_size else []
    return Proposal(sizes=tuple(sizes), searched=tuple(searched), left=tuple(left))


def _for(argument: Argument) -> Searched | Left:
    if argument.name in RESERVED:
        return _not_given(argument)
    if not argument.required and argument.default is None:
        return Left(
            name=argument.name,
            comment="None in the class, which TOML cannot say; put a value here to change it",
        )
    if KEPT & set(argument.name.lower().split("_")) and not argument.required:
        return _as_it_is(argument, "nothing to search over")
    found = _BY_KIND[argument.kind](argument)
    if found is not None:
        return found
    if argument.required:
        return Left(
            name=argument.name,
            to_fill=True,
            comment="fill in: the class has no default for it; remove the # at the beginning",
        )
    return _as_it_is(argument, _how_to_search(argument))


def _not_given(argument: Argument) -> Left:
    return Left(
        name=argument.name,
        comment="fill in: a study file means something else by this name, rename the argument"
        if argument.required
        else "the class keeps its own: a study file means something else by this name",
        to_fill=argument.required,
    )


def _of_bool(argument: Argument) -> Searched | None:
    return _choice(argument, (True, False), bool(argument.default), "with it and without")


def _of_choice(argument: Argument) -> Searched | None:
    choices = tuple(dict.fromkeys(argument.choices))
    if len(choices) < 2:  # noqa: PLR2004 - nothing to choose
        return None
    default = choices[0] if argument.required else argument.default
    if default not in choices:
        return None
    return _choice(argument, choices, default, "each is an option of the class")


def _choice(
    argument: Argument, choices: tuple[Plain, ...], default: Plain, reason: str
) -> Searched:
    space = {"type": "choice", "choices": list(choices)}
    return Searched(name=argument.name, default=default, space=space, reason=reason)


def _of_int(argument: Argument) -> Searched | None:
    name, default = argument.name.lower(), argument.default
    guessed = argument.required
    if guessed and any(part in name for part in DEPTHS):
        default = DEPTH
    elif guessed and any(part in name for part in WIDTHS):
        default = WIDTH
    if not isinstance(default, int) or not 0 <= default <= LARGEST:
        return None
    known = "a guess: the class has no default" if guessed else f"the class's default is {default}"
    if default >= LEAST_POWER and _is_power(default):
        return _powers(argument.name, default, f"{known}; powers of two fill tensor-core tiles")
    if default > 1 and "head" in name and _is_power(default):
        return _powers(argument.name, default, f"{known}; a power of two divides most widths")
    space: dict[str, Any] = {"type": "int", "low": max(default // 2, min(default, 1))}
    space["high"] = max(2 * default, default + 2)
    reason = f"{known}; fewer are faster, more may fit better"
    if "kernel" in name and default % 2:
        space |= {"low": max(default - 2, 1), "high": default + 4, "step": 2}
        reason = f"{known}; odd ones have a middle"
    return Searched(name=argument.name, default=default, space=space, reason=reason)


def _of_float(argument: Argument) -> Searched | None:
    name, default = argument.name.lower(), argument.default
    number = isinstance(default, int | float) and abs(default) <= LARGEST
    if "drop" in name and (argument.required or (number and 0 <= default < 1)):
        return _dropout(argument)
    if not number or default <= 0:
        return None
    default = float(default)
    known = f"the class's default is {default:g}"
    space: dict[str, Any] = {"type": "float"}
    if default < 1 and any(part in name for part in SHARES):
        space |= {"low": _round(default / 2), "high": _round((1 + default) / 2)}
        reason = f"{known}; a share stays below 1"
    else:
        space |= {"low": _round(default / 10), "high": _round(default * 10), "scale": "log"}
        reason = f"{known}; a decade to each side"
    return Searched(name=argument.name, default=default, space=space, reason=reason)


def _dropout(argument: Argument) -> Searched:
    own = argument.default if argument.default is not None else DROPOUT
    high = 0.5 if own <= 0.5 else _round((1 + own) / 2)  # noqa: PLR2004 - half
    space: dict[str, Any] = {"low": 0.0, "high": high}
    if argument.name != "dropout":
        space = {"type": "float"} | space
    words = "half" if high == 0.5 else f"{high:g}"  # noqa: PLR2004
    return Searched(
        name=argument.name, default=float(own), space=space, reason=f"from none to {words}"
    )


def _hidden_size(argument: Argument) -> Searched:
    own = argument.default if isinstance(argument.default, int) and argument.default > 0 else WIDTH
    default = 1 << round(own).bit_length() - 1
    found = _powers(argument.name, default, "powers of two fill tensor-core tiles")
    space = {"low": found.space["low"], "high": found.space["high"]}
    return Searched(name=argument.name, default=default, space=space, reason=found.reason)


def _powers(name: str, default: int, reason: str) -> Searched:
    space = {
        "type": "int",
        "low": max(default // 2, 1),
        "high": default * 4,
        "powers_of_two": True,
    }
    return Searched(name=name, default=default, space=space, reason=reason)


def _as_it_is(argument: Argument, comment: str) -> Left:
    value = argument.default
    try:
        json.dumps(value, allow_nan=False)
        check_plain(value)
    except (TypeError, ValueError):
        value = None
    if value is None or None in (value if isinstance(value, list | tuple) else ()):
        shown = excerpt(repr(argument.default), at_most=40)
        return Left(name=argument.name, comment=f"{shown} in the class, which TOML cannot say")
    return Left(name=argument.name, value=value, comment=comment)


def _how_to_search(argument: Argument) -> str:
    name = argument.name
    if argument.kind is Kind.TEXT:
        return (
            f"to search over it: move it to [defaults] and add [space.{name}] with "
            'type = "choice", choices = [...]'
        )
    if argument.kind in (Kind.INT, Kind.FLOAT):
        return (
            f"to search over it: move it to [defaults] and add [space.{name}] with "
            f'type = "{argument.kind.value}", low = ..., high = ...'
        )
    return "stays as it is"


def _nothing(argument: Argument) -> None:
    del argument


_BY_KIND: Mapping[Kind, Callable[[Argument], Searched | None]] = {
    Kind.BOOL: _of_bool,
    Kind.CHOICE: _of_choice,
    Kind.INT: _of_int,
    Kind.FLOAT: _of_float,
    Kind.TEXT: _nothing,
    Kind.OTHER: _nothing,
    Kind.UNKNOWN: _nothing,
}


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _round(value: float) -> float:
    """Without the last digits that dividing leaves."""
    return float(f"{value:.6g}")
