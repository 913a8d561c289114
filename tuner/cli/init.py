"""`tuner init`: files to begin with, written for a person to change."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli import init_data
from tuner.cli.init_place import check_place, written
from tuner.cli.options import DataDir, Json, TaskName, data_folder, note
from tuner.cli.output import print_json, say
from tuner.cli.own_output import printed_to_stderr
from tuner.config import shapes_seen
from tuner.models.names import library_class

if TYPE_CHECKING:
    from tuner.spec.study_file import StudyFile

app = typer.Typer(help="Write a file to begin with.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Write a file to begin with."""


@app.command(short_help="Propose a study file for a class of your own.")
def variant(
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:Class",
            help="The class, package.module:Class, or neuralforecast:NAME.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="Where it goes (default: named after the class)."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over the file if it is there.")
    ] = False,
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
        proposed = _proposed(model, output, tried_on, force=force)
        path = proposed.path
        tried = None if proposed.to_fill else task
        file = _write(path, proposed.text, tried, data_folder(data_dir))
    searched = list(tomllib.loads(proposed.text)["space"])
    if json:
        print_json(
            {
                "file": str(path),
                "name": file.name,
                "model": proposed.model,
                "searched": searched,
                "left": list(proposed.left),
                "to_fill": list(proposed.to_fill),
                "next": list(next_commands(path, tried_on)),
            }
        )
        return 0
    say(f"wrote {path}; it searches over {', '.join(searched)}")
    if proposed.to_fill:
        note(
            f"{path}: fill in {', '.join(proposed.to_fill)} under [model_settings] first; the "
            "network was not tried"
        )
    say("next:")
    for command in next_commands(path, tried_on):
        say(f"  {command}")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proposed:
    """What is to be written."""

    path: Path
    text: str
    model: str
    left: tuple[str, ...] = ()
    to_fill: tuple[str, ...] = ()


def _proposed(
    model: str, output: Path | None, tried_on: Sequence[str], *, force: bool
) -> _Proposed:
    from tuner.spec.study_text import study_text, variant_name

    of_library = library_class(model)
    if of_library is not None:
        from tuner.spec.library_text import library_text

        path = output or Path(f"{variant_name(of_library)}.toml")
        check_place(path, kind="study", force=force)
        return _Proposed(path=path, text=library_text(of_library, path, tried_on), model=model)
    from tuner.models.constructor import constructor_of
    from tuner.spec.proposal import propose

    constructor = constructor_of(model)
    path = output or Path(f"{variant_name(constructor.class_name)}.toml")
    check_place(path, kind="study", force=force)
    proposal = propose(constructor)
    beside = _from(path, model)
    return _Proposed(
        path=path,
        text=study_text(constructor, proposal, beside, path, tried_on),
        model=beside,
        left=tuple(each.name for each in proposal.left),
        to_fill=proposal.to_fill,
    )


def _from(path: Path, model: str) -> str:
    """The class as the file names it: a Python file relative to the file's folder."""
    location, _, name = model.rpartition(":")
    if not location.endswith(".py"):
        return model
    there = os.path.relpath(Path(location).expanduser().resolve(), path.parent.resolve())
    return f"{Path(there).as_posix()}:{name}"


def _write(path: Path, text: str, task: str | None, data_dir: Path | None) -> StudyFile:
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
    from tuner.trial.uncollected import nothing_collected

    prepared = prepare(load_task(task), data_dir=data_dir)
    with nothing_collected():
        from tuner.training.one_step import build_within_memory

    hyperparameters = file.default_hyperparameters()
    seen = shapes_seen(prepared.shapes, hyperparameters)
    build_within_memory(file.architecture(), hyperparameters, seen)


app.command("data", short_help="Propose a task file for a file of data.")(init_data.data)
