"""A study file as text, written for a person to change."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config import LIBRARY, OF_THE_TASK, OF_TRAINING
from tuner.display.text import command_line, filled
from tuner.files.plain import check_plain, excerpt
from tuner.files.toml_file import short_number, toml_key, toml_value
from tuner.models.constructor import Argument, Constructor, Kind, Plain
from tuner.models.of_neuralforecast.auto_space import study_of_library
from tuner.spec.study_file import builtin_variants, studies_folder

# Ranges proposed for the arguments of a class, by their kinds and names: where to begin.


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
    propose_range = _BY_KIND.get(argument.kind)
    if propose_range is not None and (found := propose_range(argument)) is not None:
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
    space = {"type": "int", "low": max(default // 2, 1), "high": default * 4, "powers_of_two": True}
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


_BY_KIND: Mapping[Kind, Callable[[Argument], Searched | None]] = {
    Kind.BOOL: _of_bool,
    Kind.CHOICE: _of_choice,
    Kind.INT: _of_int,
    Kind.FLOAT: _of_float,
}


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _round(value: float) -> float:
    """Without the last digits that dividing leaves."""
    return float(f"{value:.6g}")


REASONS = {
    "learning_rate": "a decade below and two above 1e-4: the best rate grows with batch and size",
    "weight_decay": "exactly 0 is part of the range, below its low end",
    "batch_size": "smaller means more, noisier steps an epoch",
}
"""Why the ranges are those of studies/original.toml."""
_TEMPLATE = Path(__file__).with_name("study.txt")
TRIED_ON = ("--task", "demo")
"""Generated data, which is always there: with one's own task in both commands the check is of that.
"""


def variant_name(class_name: str) -> str:
    """`LastValueMLP` is `last-value-mlp`; no built-in variant is called so."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name.strip("_"))
    name = re.sub(r"[^a-z0-9.-]+", "-", words.lower()).strip("-.") or "mine"
    return f"{name}-own" if name in builtin_variants() else name


def next_commands(path: Path, tried_on: Sequence[str] = TRIED_ON) -> tuple[str, str]:
    """What to type when the file is there. `tried_on` are the options that name the data."""
    return (
        command_line(["tuner", "variants", "--check", str(path), *tried_on]),
        command_line(["tuner", "launch", "--variant", str(path), *tried_on]),
    )


def study_text(
    constructor: Constructor,
    proposal: Proposal,
    model: str,
    path: Path,
    tried_on: Sequence[str] = TRIED_ON,
) -> str:
    """The whole file, as TOML with comments.

    Args:
        constructor: of the class.
        proposal: for its arguments.
        model: the class, relative to the file.
        path: where the file will lie, as it was named.
        tried_on: the options that name the data in whose shapes the network was built.
    """
    original = tomllib.loads((studies_folder() / "original.toml").read_text(encoding="utf-8"))
    return filled(
        _TEMPLATE,
        key=toml_key,
        toml=_toml,
        name=variant_name(constructor.class_name),
        class_name=constructor.class_name,
        what=constructor.about or f"{constructor.class_name} of {model.rpartition(':')[0]}",
        model=model,
        left=proposal.left,
        searched=[*_built_in(proposal, original), *proposal.searched],
        training=original["training"],
        generated=tried_on == TRIED_ON,
        commands=next_commands(path, tried_on),
    )


def _built_in(proposal: Proposal, original: Mapping[str, Any]) -> Iterator[Searched]:
    """What every study searches, and the sizes that the class takes, in their usual order."""
    sizes = {each.name: each for each in proposal.sizes}
    for name, table in original["space"].items():
        if name in REASONS:
            default, space = original["defaults"][name], table
            yield Searched(name=name, default=default, space=space, reason=REASONS[name])
        elif name in sizes:
            yield sizes[name]


def _toml(value: Any) -> str:
    return short_number(value) if isinstance(value, float) else toml_value(value)


def library_text(name: str, path: Path, tried_on: Sequence[str] = TRIED_ON) -> str:
    """The study file of a model of neuralforecast: what `--variant neuralforecast:NAME` searches,
    written out.

    Args:
        name: of the class.
        path: where the file will lie, as it was named.
        tried_on: the options that name the data in whose shapes the network was built.

    Raises:
        UsageError: as `study_of_library`.
    """
    called = variant_name(name)
    return filled(
        _TEMPLATE.with_name("library_study.txt"),
        key=toml_key,
        toml=_toml,
        name=called,
        made_by=f"Auto{name} of {LIBRARY}",
        whole=study_of_library(name) | {"name": called},
        commands=next_commands(path, tried_on),
    ).removesuffix("\n")
