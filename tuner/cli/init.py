"""`tuner init`: files to begin with, written for a person to change."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from tuner.cli.command import argument, command, option, switch, takes
from tuner.cli.options import DataDir, Json, TaskName, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr, say
from tuner.config import MANY, library_class, shapes_seen
from tuner.display.text import command_line
from tuner.errors import InterruptionError, TunerError, UsageError
from tuner.files.environment import nothing_collected
from tuner.files.plain import excerpt, in_json

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.data.proposal.proposed_task import Proposal
    from tuner.data.proposal.sheet import Guess, Told
    from tuner.spec.study_file import StudyFile


# Remedies that name keys of a task file, where there is no such file yet: as options.


@contextmanager
def as_options(file: str | None = None) -> Iterator[None]:
    """What is raised inside names the options of `tuner init data`; that command, too, where
    another one looks at the `file`.
    """
    from tuner.data.splits import SMALLER_WINDOW
    from tuner.data.times import SET_ID_COLUMN, SHORTER_FREQUENCY

    before = "" if file is None else command_line(["tuner", "init", "data", file]) + " "
    remedies = {
        SET_ID_COLUMN: ("set id_column", "--id-column NAME"),
        SMALLER_WINDOW: (SMALLER_WINDOW, "--input-size N --horizon N"),
        SHORTER_FREQUENCY: ("set a shorter frequency", "--frequency min"),
    }
    try:
        yield
    except TunerError as error:
        said = str(error)
        for remedy, (what, options) in remedies.items():
            said = said.replace(remedy, f"{what} with '{before}{options}'")
        raise type(error)(said) from None


# Where `tuner init` writes: never over a file unasked, and only what its reader takes.


Read = TypeVar("Read")


def check_place(path: Path, *, kind: str, force: bool) -> None:
    """Whether a file of this `kind` ("study", "task") may be written to `path`.

    Raises:
        UsageError: another ending, no folder, or a file that is there already.
    """
    if path.suffix != ".toml":
        raise UsageError(f"--output: {path}: a {kind} file is named .toml; name it so")
    if not path.parent.is_dir():
        raise UsageError(f"--output: {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise UsageError(f"--output: {path}: is a folder; name a file")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"--output: {path}: is a link, a pipe or a device; name a plain file")
    if path.exists() and not force:
        raise UsageError(
            f"{path}: is there already; name another file with --output, or say --force to write "
            "over it"
        )


def written(path: Path, text: str, read: Callable[[str], Read]) -> Read:
    """Put `text` at `path` if `read`, which is given the name of a file that holds it, takes it;
    what it made of it.

    Raises:
        UsageError: the disk does not take the file.
        TunerError: what `read` raised, about `path`.
    """
    from tuner.files.durable import replacing

    try:
        with replacing(path) as partial:
            partial.write(text.encode("utf-8"))
            partial.flush()
            try:
                return read(partial.name)
            except TunerError as error:
                raise type(error)(str(error).replace(partial.name, str(path))) from None
    except OSError as error:
        raise UsageError(f"--output: {path}: cannot be written ({error.strerror})") from error


# `tuner init data`: a task file for a CSV or Parquet file, proposed from what the file holds.


MOST_CHOICES = 12
"""Shown in a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The options of `tuner init data`."""

    file: Path = argument("FILE", "A CSV or Parquet file, or a pattern of many: 'run_*.csv'.")
    output: Path | None = option("TASK.toml", "Where it goes (default: named after the data).")
    yes: bool = switch("Ask nothing: take each guess, and say so.", named="--yes -y")
    force: bool = switch("Write over the file if it is there.")
    horizon: int | None = option("N", "Rows to forecast.", min=1, max=MANY)
    input_size: int | None = option("N", "Rows the model sees.", min=1, max=MANY)
    targets: str | None = option("A,B", "Columns to forecast (default: all of numbers).")
    time_column: str | None = option("NAME|none", "Where the times are; none: rows are counted.")
    id_column: str | None = option("NAME|none", "What tells series below each other apart.")
    time_format: str | None = option("FORM", "How times are written: %d.%m.%Y %H:%M, unix, ...")
    timezone: str | None = option("ZONE|none", "Where clocks showed the times: Europe/Berlin, ...")
    decimal: str | None = option("MARK", "Before decimals: . or a comma.")
    frequency: str | None = option("h|D|...", "From one row to the next.")
    json: Json = False


@takes(DataOptions)
def data(options: DataOptions) -> int:
    """Write a task file for a CSV or Parquet file: which columns hold times and targets, how far
    apart the rows are, what is missing, and how far to look ahead.

    On a terminal it asks where the file leaves something open. The data is prepared as the file
    says before it is written.
    """
    with nothing_collected():
        from tuner.cli.task_text import next_commands
        from tuner.data.open_file import STANDARD_INPUT
        from tuner.data.proposal.proposed_task import task_name

    if options.file == STANDARD_INPUT:
        raise UsageError(
            "a task file names a file, and standard input is read once: save it as one, or look at "
            "it with 'tuner data check -'"
        )
    path = options.output or Path(f"{task_name(options.file)}.toml")
    check_place(path, kind="task", force=options.force)
    asks = not options.yes and not options.json and sys.stdin.isatty()
    proposal, prepared = write_task(options, path, ask=_ask if asks else None)
    commands = next_commands(path)
    if options.json:
        print_json(_document(path, proposal, prepared, commands))
        return 0
    say(f"wrote {path}; {in_words(proposal, prepared)}")
    tell_guesses(proposal)
    say("next:")
    for each in commands:
        say(f"  {each}")
    return 0


def tell_guesses(proposal: Proposal) -> None:
    """What was guessed, and what was made of the file, in a line each."""
    for guess in proposal.guesses:
        note(f"a guess: {guess.key} = {guess.value}: {guess.why}")
    for each in proposal.notes[:MOST_CHOICES]:
        note(excerpt(each, at_most=200))
    if len(proposal.notes) > MOST_CHOICES:
        note(f"and {len(proposal.notes) - MOST_CHOICES:,} more, as the task file says")


def proposed(
    file: Path, name: str, told: Told, *, ask: Callable[[Guess], Any] | None = None
) -> Proposal:
    """A task for a file. `ask` has the answer to what is open; without it, each guess is taken.

    Raises:
        UsageError: nobody is asked, and the file can be read in two ways.
    """
    from tuner.data.proposal.proposed_task import propose
    from tuner.data.proposal.sheet import read_sheet

    sheet = read_sheet(file.expanduser(), told)
    proposal = propose(sheet, told, name)
    while ask is not None and proposal.guesses:
        guess = proposal.guesses[0]
        told = replace(told, **{guess.key: ask(guess)})
        if guess.key in ("header", "decimal"):
            sheet = read_sheet(file.expanduser(), told)
        proposal = propose(sheet, told, name)
    for guess in proposal.guesses:
        if guess.readings:
            flag = command_line([f"--{guess.key.replace('_', '-')}", guess.value])
            raise UsageError(
                f"{file} can be read in more than one way, with {guess.key.replace('_', ' ')} "
                f"{'; or '.join(guess.readings)}; say which, as in 'tuner init data ... {flag}'"
            )
    return proposal


def _told(options: DataOptions) -> Told:
    from tuner.data.proposal.sheet import Told

    if options.decimal not in (None, ".", ","):
        raise UsageError(f"--decimal {options.decimal!r}: expected . or a comma")
    targets = None
    if options.targets is not None:
        targets = tuple(each.strip() for each in options.targets.split(",") if each.strip())
        if not targets:
            raise UsageError("--targets: names no column; give one or several, separated by commas")
    return Told(
        time_column=options.time_column,
        id_column=options.id_column,
        time_format=options.time_format,
        timezone=options.timezone,
        decimal=options.decimal,
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
            asked = f"{guess.why}; {guess.key.replace('_', ' ')}?{choices}"
            answer = str(typer.prompt(asked, default=guess.value)).strip()
        except typer.Abort as abort:
            told = "interrupted; nothing was written"
            raise InterruptionError(told, abort.__context__) from None
        if not guess.choices or answer in guess.choices:
            return answer
        note(f"{answer!r} is none of them")


def write_task(
    options: DataOptions, path: Path, ask: Callable[[Guess], Any] | None = None, *, named: str = ""
) -> tuple[Proposal, PreparedData]:
    """Put a task for the file that `options` name at `path`, if its reader takes it, and its data
    can be prepared. `ask` is as of `proposed`, `named` as of `as_options`.
    """
    from tuner.cli.task_text import task_text
    from tuner.data.prepare import prepare
    from tuner.data.proposal.proposed_task import task_name
    from tuner.data.task import load_task

    proposal = proposed(options.file, task_name(options.file), _told(options), ask=ask)
    text, file = task_text(proposal, options.file, path), proposal.file
    with as_options(named or None):
        return proposal, written(path, text, lambda name: prepare(load_task(name), file=file))


def in_words(proposal: Proposal, prepared: PreparedData) -> str:
    """What a proposal forecasts, and how many windows there are."""
    windows = ", ".join(f"{count:,} {name}" for name, count in windows_of(prepared).items())
    series = f"{proposal.series:,} series, " if proposal.series > 1 else ""
    targets = len(proposal.targets)
    return (
        f"{targets:,} {'target' if targets == 1 else 'targets'}, "
        f"{series}frequency {proposal.frequency}, "
        f"{proposal.sizes.input_size} rows in, {proposal.sizes.horizon} out; windows: {windows}"
    )


def windows_of(prepared: PreparedData) -> dict[str, int]:
    """How many each split has."""
    from tuner.data.splits import SPLITS

    return {name: len(getattr(prepared, name).starts) for name in SPLITS}


def _document(
    path: Path, proposal: Proposal, prepared: PreparedData, commands: Sequence[str]
) -> dict[str, Any]:
    return {
        "file": str(path),
        **in_json(proposal, "name", "source", "targets", "left_out", "frequency"),
        **in_json(proposal, "notes", past_covariates="past", future_covariates="future"),
        **in_json(proposal.sizes, "input_size", "horizon"),
        **in_json(proposal, "calendar", "rows"),
        "series": list(prepared.series),
        "windows": windows_of(prepared),
        "filled": {"rows": sum(prepared.filled_rows), "cells": sum(prepared.filled_cells)},
        "guesses": [in_json(each, "key", "value", "why") for each in proposal.guesses],
        "next": list(commands),
    }


app = typer.Typer(help="Write a file to begin with.", no_args_is_help=True)


@app.command(short_help="Propose a study file for a class of your own.")
@command
def variant(
    model: str = argument(
        "FILE.py:Class", "The class, package.module:Class, or neuralforecast:NAME."
    ),
    output: Path | None = option("FILE.toml", "Where it goes (default: named after the class)."),
    force: bool = switch("Write over the file if it is there."),
    task: TaskName = "demo",
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Write a study file for a class of your own: a range for each argument of its constructor that
    has an obvious one, with the reason; for a model of neuralforecast, what the library would
    search.

    The network is built at the proposed defaults, in --task's shapes, before the file is written.
    """
    with printed_to_stderr(wanted=json):
        from tuner.spec.study_text import next_commands

        tried_on: tuple[str, ...] = ("--task", task)
        if data_dir is not None:
            tried_on += ("--data-dir", str(data_dir))
        path, text, said = _proposed(model, output, tried_on, force=force)
        tried = None if said["to_fill"] else task
        file = _write_study(path, text, tried, data_folder(data_dir))
    searched = list(tomllib.loads(text)["space"])
    if json:
        wrote = {"file": str(path), "name": file.name, "searched": searched, **said}
        print_json(wrote | {"next": list(next_commands(path, tried_on))})
        return 0
    say(f"wrote {path}; it searches over {', '.join(searched)}")
    if said["to_fill"]:
        note(
            f"{path}: fill in {', '.join(said['to_fill'])} under [model_settings] first; the "
            "network was not tried"
        )
    say("next:")
    for each in next_commands(path, tried_on):
        say(f"  {each}")
    return 0


def _proposed(
    model: str, output: Path | None, tried_on: Sequence[str], *, force: bool
) -> tuple[Path, str, dict[str, Any]]:
    """Where the file goes, its text, and what is said of it."""
    from tuner.models.constructor import constructor_of
    from tuner.spec.study_text import library_text, propose, study_text, variant_name

    if (of_library := library_class(model)) is not None:
        path = output or Path(f"{variant_name(of_library)}.toml")
        check_place(path, kind="study", force=force)
        text = library_text(of_library, path, tried_on)
        return path, text, {"model": model, "left": [], "to_fill": []}
    constructor = constructor_of(model)
    path = output or Path(f"{variant_name(constructor.class_name)}.toml")
    check_place(path, kind="study", force=force)
    proposal, beside = propose(constructor), _from(path, model)
    text = study_text(constructor, proposal, beside, path, tried_on)
    left = [each.name for each in proposal.left]
    return path, text, {"model": beside, "left": left, "to_fill": list(proposal.to_fill)}


def _from(path: Path, model: str) -> str:
    """The class as the file names it: a Python file relative to the file's folder."""
    location, _, name = model.rpartition(":")
    if not location.endswith(".py"):
        return model
    there = os.path.relpath(Path(location).expanduser().resolve(), path.parent.resolve())
    return f"{Path(there).as_posix()}:{name}"


def _write_study(path: Path, text: str, task: str | None, data_dir: Path | None) -> StudyFile:
    """Put the text at `path` if the study file's reader, and the network, take it.

    Args:
        path: of the file.
        text: of it.
        task: in whose shapes the network is built; None where it cannot be built yet.
        data_dir: of the task.
    """
    from tuner.spec.study_file import load_study_file

    def read(name: str) -> StudyFile:
        file = load_study_file(name)
        if task is not None:
            _try(file, task, data_dir)
        return file

    return written(path, text, read)


def _try(file: StudyFile, task: str, data_dir: Path | None) -> None:
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task

    prepared = prepare(load_task(task), data_dir=data_dir)
    with nothing_collected():
        from tuner.training.one_step import build_within_memory

    hyperparameters = file.default_hyperparameters()
    seen = shapes_seen(prepared.shapes, hyperparameters)
    build_within_memory(file.architecture(), hyperparameters, seen)


app.command("data", short_help="Propose a task file for a file of data.")(data)
