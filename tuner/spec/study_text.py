"""A study file as text, written for a person to change."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.display.text import command_line, shown
from tuner.files.toml_text import short_number, toml_key, toml_value
from tuner.models.constructor import Constructor
from tuner.spec.proposal import Left, Proposal
from tuner.spec.study_file import builtin_variants, studies_folder

REASONS = {
    "learning_rate": "a decade below and two above 1e-4: the best rate grows with batch and size",
    "weight_decay": "exactly 0 is part of the range, below its low end",
    "batch_size": "smaller means more, noisier steps an epoch",
}
"""Why the ranges are those of studies/original.toml."""
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
    return "\n".join(
        [
            *_head(constructor, model),
            *_settings(proposal),
            *_defaults(proposal, original),
            *_space(proposal, original),
            *_training(original),
            *_end(path, tried_on),
        ]
    )


def _head(constructor: Constructor, model: str) -> Iterator[str]:
    name = variant_name(constructor.class_name)
    what = constructor.about or f"{constructor.class_name} of {model.rpartition(':')[0]}"
    yield f'# The study of variant "{name}": what it is, where its search starts, where it may go.'
    yield (
        f"# Proposed from the constructor of {shown(constructor.class_name)}: "
        "change what you know better."
    )
    yield ""
    yield f"name = {toml_value(name)}"
    yield "# What is different about it, in a few words."
    yield f"core_change = {toml_value(what)}"
    yield "# What do you expect of it?"
    yield 'why = ""'
    beside = "   # relative to this file" if ".py:" in model else ""
    yield f"model = {toml_value(model)}{beside}"
    yield ""


def _settings(proposal: Proposal) -> Iterator[str]:
    if not proposal.left:
        return
    yield "# Handed to the class as they are."
    yield "[model_settings]"
    for each in proposal.left:
        yield from _setting(each)
    yield ""


def _setting(left: Left) -> Iterator[str]:
    yield f"# {left.name}: {shown(left.comment)}"
    if left.value is not None:
        yield f"{toml_key(left.name)} = {_value(left.value)}"
    else:
        yield f"# {toml_key(left.name)} = ..."


def _defaults(proposal: Proposal, original: Mapping[str, Any]) -> Iterator[str]:
    sizes = {each.name: each.default for each in proposal.sizes}
    yield "# The first trial of the study; it lies within the ranges below."
    yield "[defaults]"
    for name, value in original["defaults"].items():
        if name in REASONS or name in sizes:
            yield f"{name} = {_value(sizes.get(name, value))}"
    for each in proposal.searched:
        yield f"{toml_key(each.name)} = {_value(each.default)}"
    yield ""


def _space(proposal: Proposal, original: Mapping[str, Any]) -> Iterator[str]:
    sizes = {each.name: each for each in proposal.sizes}
    for name, table in original["space"].items():
        if name in REASONS:
            yield from _range(name, table, REASONS[name])
        elif name in sizes:
            yield from _range(name, sizes[name].space, sizes[name].reason)
    for each in proposal.searched:
        yield from _range(each.name, each.space, each.reason)


def _range(name: str, table: Mapping[str, Any], reason: str) -> Iterator[str]:
    yield f"[space.{toml_key(name)}]"
    for key, value in table.items():
        if key != "reason":
            yield f"{key} = {_value(value)}"
    yield f"reason = {toml_value(reason)}"
    yield ""


def _training(original: Mapping[str, Any]) -> Iterator[str]:
    yield "[training]"
    for key, value in original["training"].items():
        yield f"{key} = {_value(value)}"
    yield ""


def _end(path: Path, tried_on: Sequence[str]) -> Iterator[str]:
    own = " Name your own task in place of generated data." if tried_on == TRIED_ON else ""
    yield f"# Next: try it for a step, then search.{own}"
    for command in next_commands(path, tried_on):
        yield f"#   {shown(command)}"
    yield ""


def _value(value: Any) -> str:
    return short_number(value) if isinstance(value, float) else toml_value(value)
