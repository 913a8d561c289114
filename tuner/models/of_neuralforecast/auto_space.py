"""The study that neuralforecast itself would make of one of its classes, as a study file has it.

The space is that of the library's `Auto<NAME>`, value for value, under the library's names. Left
out is what is not a hyperparameter here (`class_arguments`) and what the class
ignores. Learning rate and batch size are the study's own; the library's Adam has no weight decay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.config import LIBRARY
from tuner.errors import UsageError, unknown_name
from tuner.models.of_neuralforecast.library_source import (
    NO_NETWORK,
    OWNED,
    Choice,
    Real,
    Searched,
    Whole,
    constructor_defaults,
    model_names,
    searched_by_library,
)

LEARNING_RATE = Real(1e-4, 1e-1, log=True)
"""Of nearly every `Auto` class: for the few classes that have none."""

NEVER_READ = "context_size"
"""Searched by AutoTCN and AutoDilatedRNN, whose classes keep it and never look at it."""


def study_of_library(name: str) -> dict[str, Any]:
    """The study file, as its TOML is read: defaults of the constructor and the space of
    `Auto<name>`. Nothing heavy is imported.

    A default that the library does not search itself joins the space: it is a study's first trial.

    Raises:
        UsageError: no such class, neuralforecast is not installed, or cannot be read.
    """
    if name not in model_names():
        raise unknown_name(f"model of {LIBRARY}", name, model_names())
    preset, searched = constructor_defaults(name), searched_by_library(name)
    if "learning_rate" not in preset:
        raise UsageError(f"{LIBRARY}:{name} is no network: {NO_NETWORK}")
    auto = f"Auto{name}"
    defaults = {"learning_rate": preset["learning_rate"], "batch_size": _batch(preset)}
    space = {
        "learning_rate": _table(
            "learning_rate",
            searched.get("learning_rate", LEARNING_RATE),
            preset["learning_rate"],
            auto,
        ),
        "batch_size": _batch_table(searched, preset, auto),
    }
    for argument, values in searched.items():
        default = preset.get(argument)
        if argument in (*OWNED, NEVER_READ) or default is None or _is_fixed(values):
            continue  # None is the default of arguments that a class no longer uses
        defaults[argument] = _text_of_list(default)
        space[argument] = _table(argument, values, default, auto)
    return {
        "name": f"{LIBRARY}.{name}",
        "title": f"{name} of {LIBRARY}",
        "core_change": f"{LIBRARY}'s {name}",
        "source": f"space and defaults from {auto} and {name} of {LIBRARY}",
        "model": f"{LIBRARY}:{name}",
        "defaults": defaults,
        "space": space,
    }


def _is_fixed(values: Searched) -> bool:
    return isinstance(values, Choice) and len(values.values) == 1


def _batch(preset: Mapping[str, Any]) -> int:
    return int(preset["windows_batch_size"])


def _batch_table(
    searched: Mapping[str, Searched], preset: Mapping[str, Any], auto: str
) -> dict[str, Any]:
    """Windows in a step: the library's windows_batch_size; its batch_size counts series."""
    values = searched.get("windows_batch_size")
    if isinstance(values, Choice):
        low, high = min(values.values), max(values.values)
        return {"low": low, "high": high, "reason": f"{auto} searches windows_batch_size here"}
    own = _batch(preset)
    reason = "from a quarter of the class's windows_batch_size to four times it"
    return {"low": max(own // 4, 1), "high": own * 4, "reason": reason}


def _table(name: str, values: Searched, default: Any, auto: str) -> dict[str, Any]:
    """One `[space.NAME]`."""
    if isinstance(values, Real):
        table: dict[str, Any] = {
            "low": min(values.low, default),
            "high": max(values.high, default),
            "scale": "log" if values.log else "linear",
        }
        added = not values.low <= default <= values.high
    elif isinstance(values, Whole):
        table = {"low": min(values.low, default), "high": max(values.high, default)}
        added = not values.low <= default <= values.high
    else:
        added = default not in values.values
        table = _of_choice(name, [*values.values, *([default] if added else [])])
    kind = {} if name in _FIVE and "choices" not in table else {"type": _kind(values, table)}
    reason = f"{auto} searches here"
    if added:
        reason += f"; the class's default, {_text_of_list(default)}, is added"
    return {**kind, **table, "reason": reason}


_FIVE = ("learning_rate", "dropout", "hidden_size")
"""Those of the five whose table needs no type: what they are is known."""


def _kind(values: Searched, table: Mapping[str, Any]) -> str:
    if "choices" in table:
        return "choice"
    return "float" if isinstance(values, Real) else "int"


def _of_choice(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A range where these are all of its values: a model of the space then knows their order."""
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in values)
    if not whole:
        return {"choices": [_text_of_list(each) for each in values]}
    ordered = sorted(values)
    low, high, step = ordered[0], ordered[-1], ordered[1] - ordered[0]
    if low > 0 and ordered == [low << n for n in range(len(ordered))] and low & (low - 1) == 0:
        powers = {} if name == "hidden_size" else {"powers_of_two": True}
        return {"low": low, "high": high, **powers}
    even = ordered == list(range(low, high + 1, step)) and (step == 1 or len(ordered) > 2)  # noqa: PLR2004
    if name != "hidden_size" and even:
        return {"low": low, "high": high, **({} if step == 1 else {"step": step})}
    return {"choices": ordered}


def _text_of_list(value: Any) -> Any:
    """A list as text, which a choice can hold and the class's adapter reads."""
    return json.dumps(value) if isinstance(value, list) else value
