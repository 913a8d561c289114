"""`tuner init data`: a task file for a CSV or Parquet file, proposed from what the file holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.command import takes
from tuner.cli.init_hints import as_options
from tuner.cli.init_place import check_place, written
from tuner.cli.options import Json, note
from tuner.cli.output import print_json, say
from tuner.config import MANY
from tuner.errors import InterruptionError, UsageError

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.data.proposal.proposed_task import Proposal
    from tuner.data.proposal.sheet import Sheet
    from tuner.data.proposal.told import Guess, Told

MOST_CHOICES = 12
"""Shown in a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The options of `tuner init data`."""

    file: Annotated[
        Path,
        typer.Argument(metavar="FILE.csv|FILE.parquet", help="The data.", show_default=False),
    ]
    output: Annotated[
        Path | None,
        typer.Option(metavar="TASK.toml", help="Where it goes (default: named after the data)."),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: take each guess, and say so.")
    ] = False
    force: Annotated[bool, typer.Option("--force", help="Write over the file if it is there.")] = (
        False
    )
    horizon: Annotated[
        int | None, typer.Option(min=1, max=MANY, metavar="N", help="Rows to forecast.")
    ] = None
    input_size: Annotated[
        int | None, typer.Option(min=1, max=MANY, metavar="N", help="Rows the model sees.")
    ] = None
    targets: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns to forecast (default: all of numbers)."),
    ] = None
    time_column: Annotated[
        str | None,
        typer.Option(metavar="NAME|none", help="Where the times are; none: rows are counted."),
    ] = None
    id_column: Annotated[
        str | None,
        typer.Option(metavar="NAME|none", help="What tells series below each other apart."),
    ] = None
    frequency: Annotated[
        str | None, typer.Option(metavar="h|D|...", help="From one row to the next.")
    ] = None
    json: Json = False


@takes(DataOptions)
def data(options: DataOptions) -> int:
    """Write a task file for a CSV or Parquet file: which columns hold times and targets, how far
    apart the rows are, what is missing, and how far to look ahead.

    On a terminal it asks where the file leaves something open. The data is prepared as the file
    says before it is written.
    """
    from tuner.data.proposal.proposed_task import task_name
    from tuner.data.proposal.task_text import next_commands, task_text

    name = task_name(options.file)
    path = options.output or Path(f"{name}.toml")
    check_place(path, kind="task", force=options.force)
    asks = not options.yes and not options.json and sys.stdin.isatty()
    proposal = proposed(options.file, name, _told(options), ask=_ask if asks else None)
    prepared = _write(path, task_text(proposal, options.file, path))
    commands = next_commands(path)
    if options.json:
        print_json(_document(path, proposal, prepared, commands))
        return 0
    say(f"wrote {path}; {_in_words(proposal, prepared)}")
    for guess in proposal.guesses:
        note(f"a guess: {guess.key} = {guess.value}: {guess.why}")
    say("next:")
    for command in commands:
        say(f"  {command}")
    return 0


def proposed(
    file: Path, name: str, told: Told, *, ask: Callable[[Guess], Any] | None = None
) -> Proposal:
    """A task for a file. `ask` has the answer to what is open; without it, each guess is taken."""
    from tuner.data.proposal.proposed_task import propose

    sheet = _sheet(file, told)
    proposal = propose(sheet, told, name)
    while ask is not None and proposal.guesses:
        guess = proposal.guesses[0]
        told = replace(told, **{guess.key: ask(guess)})
        if guess.key == "header":
            sheet = _sheet(file, told)
        proposal = propose(sheet, told, name)
    return proposal


def _sheet(file: Path, told: Told) -> Sheet:
    from tuner.data.proposal.sheet import read_sheet
    from tuner.data.wildcards import is_wild

    if is_wild(str(file)) and not file.expanduser().exists():
        raise UsageError(
            f"{file} names many files, and a task is proposed for one; name one of them, then put "
            f"path = '{file}' under [source] into what is written"
        )
    header = None if told.header is None else told.header == "yes"
    return read_sheet(file.expanduser(), header=header)


def _told(options: DataOptions) -> Told:
    from tuner.data.proposal.told import Told

    targets = None
    if options.targets is not None:
        targets = tuple(each.strip() for each in options.targets.split(",") if each.strip())
        if not targets:
            raise UsageError("--targets: names no column; give one or several, separated by commas")
    return Told(
        time_column=options.time_column,
        id_column=options.id_column,
        frequency=options.frequency,
        targets=targets,
        horizon=options.horizon,
        input_size=options.input_size,
    )


def _ask(guess: Guess) -> str:
    """The answer at the terminal; Enter takes the guess.

    Raises:
        InterruptionError: Ctrl-C, or the end of the input.
    """
    choices = f" [{', '.join(guess.choices[:MOST_CHOICES])}]" if guess.choices else ""
    while True:
        try:
            answer = str(typer.prompt(f"{guess.question}{choices}", default=guess.value)).strip()
        except typer.Abort as abort:
            told = "interrupted; nothing was written"
            raise InterruptionError(told, abort.__context__) from None
        if not guess.choices or answer in guess.choices:
            return answer
        note(f"{answer!r} is none of them")


def _write(path: Path, text: str) -> PreparedData:
    """Put the text at `path` if the task file's reader takes it, and its data can be prepared."""
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task

    with as_options():
        return written(path, text, lambda name: prepare(load_task(name)))


def _in_words(proposal: Proposal, prepared: PreparedData) -> str:
    windows = ", ".join(f"{count:,} {name}" for name, count in _windows(prepared).items())
    series = f"{proposal.series:,} series, " if proposal.series > 1 else ""
    targets = len(proposal.targets)
    return (
        f"{targets:,} {'target' if targets == 1 else 'targets'}, "
        f"{series}frequency {proposal.frequency}, "
        f"{proposal.sizes.input_size} rows in, {proposal.sizes.horizon} out; windows: {windows}"
    )


def _windows(prepared: PreparedData) -> dict[str, int]:
    from tuner.data.split_rows import SPLITS

    return {name: len(getattr(prepared, name).starts) for name in SPLITS}


def _document(
    path: Path, proposal: Proposal, prepared: PreparedData, commands: Sequence[str]
) -> dict[str, Any]:
    return {
        "file": str(path),
        "name": proposal.name,
        "source": dict(proposal.source),
        "targets": list(proposal.targets),
        "left_out": list(proposal.left_out),
        "frequency": proposal.frequency,
        "input_size": proposal.sizes.input_size,
        "horizon": proposal.sizes.horizon,
        "calendar": list(proposal.calendar),
        "rows": proposal.rows,
        "series": list(prepared.series),
        "windows": _windows(prepared),
        "filled": {"rows": sum(prepared.filled_rows), "cells": sum(prepared.filled_cells)},
        "guesses": [
            {"key": each.key, "value": each.value, "why": each.why} for each in proposal.guesses
        ],
        "next": list(commands),
    }
