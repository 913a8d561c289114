"""A proposed task as a file, written for a person to change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tuner.data.proposal.proposed_task import SPLIT, Proposal
from tuner.display.text import command_line, shown
from tuner.files.plain import excerpt
from tuner.files.toml_file import toml_value

WIDTH = 96
MOST_SHOWN = 12
"""Columns that a comment names."""

_OF_GAPS = {
    "fill": "missing rows and empty cells get the value before (or fill = 'interpolate')",
    "skip": "the rows that are there count as consecutive, whatever lies between them",
    "refuse": "a missing row is an error",
}


def next_commands(path: Path) -> tuple[str, ...]:
    """What to type when the file is there."""
    return (
        command_line(["tuner", "data", "check", str(path)]),
        command_line(["tuner", "launch", "--variant", "original", "--task", str(path)]),
    )


def task_text(proposal: Proposal, file: Path, path: Path) -> str:
    """The whole task file.

    Args:
        proposal: what it says.
        file: the data, as it was named.
        path: where the task file will lie, as it was named.
    """
    lines = [
        *_head(proposal, file),
        *_target_lines(proposal),
        *_windows(proposal),
        *_calendar(proposal),
        *_covariates(proposal),
        *_source_lines(proposal, file, path),
        "# Next: look at the data, then search.",
        *(f"#   {shown(command)}" for command in next_commands(path)),
    ]
    return "\n".join(lines) + "\n"


def _head(proposal: Proposal, file: Path) -> Iterator[str]:
    series = f", {proposal.series:,} series" if proposal.series > 1 else ""
    yield f"# What is to be forecast from {shown(file.name)}: {proposal.rows:,} rows{series}."
    yield "# Proposed from the file: change what you know better."
    yield ""
    yield f"name = {toml_value(proposal.name)}"
    yield ""


def _target_lines(proposal: Proposal) -> Iterator[str]:
    yield "# The columns to forecast."
    yield from _wrapped("target_columns", proposal.targets)
    for note in proposal.notes[:MOST_SHOWN]:
        yield f"# {excerpt(note, at_most=120)}"
    if len(proposal.notes) > MOST_SHOWN:
        yield f"# and {len(proposal.notes) - MOST_SHOWN} more columns"
    if proposal.bounds:
        yield from _guessed(proposal, "bounds")
        yield "# Forecasts stay within these; take a line out where more can come."
        yield "bounds = ["
        for name, (low, high) in proposal.bounds.items():
            above = "" if high is None else f", high = {high}"
            yield f"    {{ column = {toml_value(name)}, low = {low}{above} }},"
        yield "]"
    if len(proposal.targets) > 1:
        yield "# A column that moves by large numbers outweighs others where nothing is scaled."
        yield '# objective = "scaled"   # each in units of its own usual change'
    yield ""


def _wrapped(key: str, names: tuple[str, ...]) -> Iterator[str]:
    whole = f"{key} = {toml_value(list(names))}"
    if len(whole) <= WIDTH:
        yield whole
        return
    yield f"{key} = ["
    line = "   "
    for name in names:
        word = f" {toml_value(name)},"
        if len(line) + len(word) > WIDTH:
            yield line
            line = "   "
        line += word
    yield line
    yield "]"


def _windows(proposal: Proposal) -> Iterator[str]:
    yield from _guessed(proposal, "frequency")
    yield f"frequency = {toml_value(proposal.frequency)}"
    if proposal.sizes.shortened:
        yield "# Shorter than usual at this frequency: each split must hold some windows."
    yield f"input_size = {proposal.sizes.input_size}   # rows the model sees"
    yield f"horizon = {proposal.sizes.horizon}   # rows it forecasts"
    split = ", ".join(map(str, SPLIT))
    yield f"split = [{split}]   # training, validation, test: fractions of the rows, in time order"
    yield ""


def _calendar(proposal: Proposal) -> Iterator[str]:
    if proposal.source.get("index"):
        yield "# Cycles of the calendar need dates: set start below, then for example"
        yield '# calendar = ["day_of_week", "month"]'
    else:
        yield "# Known ahead: where in the day, the week or the year a row is."
        yield f"calendar = {toml_value(list(proposal.calendar))}"
    if proposal.static_id:
        yield "# The model is told which series a window comes from."
        yield "static_id = true"
        yield '# objective_series = "..."   # without it: the mean over all series'
    yield ""


def _covariates(proposal: Proposal) -> Iterator[str]:
    yield "# Columns that help and are not forecast; each column has one role."
    for key, names, why in (
        ("past_covariates", proposal.past, "known only up to now"),
        ("future_covariates", proposal.future, "known over the horizon too"),
    ):
        said = "" if names else "# "
        yield f"{said}{key} = {toml_value(list(names))}   # {why}"
    yield ""


def _source_lines(proposal: Proposal, file: Path, path: Path) -> Iterator[str]:
    beside = os.path.relpath(file.expanduser().resolve(), path.parent.resolve())
    source = dict(proposal.source)
    yield "[source]"
    yield f"kind = {toml_value(source.pop('kind'))}"
    yield f"path = {toml_value(Path(beside).as_posix())}   # relative to this file"
    for key, value in source.items():
        yield from _guessed(proposal, key)
        if key == "gaps":
            yield f"# {_OF_GAPS[value]}"
        yield f"{key} = {toml_value(value)}"
    lines = {*source, "frequency", "bounds", *(["time_column"] if source.get("index") else [])}
    for guess in proposal.guesses:  # those whose answer is the usual one, and has no line
        if guess.key not in lines:
            yield f"# A guess: {excerpt(guess.why, at_most=160)}."
    if source.get("index"):
        yield '# start = "1990-01-01"   # the date of the first row'
    yield ""


def _guessed(proposal: Proposal, key: str) -> Iterator[str]:
    keys = {key, "time_column"} if key == "index" else {key}
    for guess in proposal.guesses:
        if guess.key in keys:
            yield f"# A guess: {excerpt(guess.why, at_most=160)}."
