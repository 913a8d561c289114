"""`tuner variants`: which architectures there are, what each changes, and why."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.built_choices import batch_sizes_that_fail, choices_that_fail
from tuner.cli.options import DataDir, Json, TaskName, data_folder, note
from tuner.cli.output import print_json, say
from tuner.cli.own_output import printed_to_stderr
from tuner.cli.whole_library import check_library
from tuner.cli.wrong_setting import with_its_place
from tuner.errors import UsageError
from tuner.models.names import LIBRARY, library_class
from tuner.trial.uncollected import nothing_collected

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.spec.study_file import StudyFile
    from tuner.training.one_step import OneStep

SPLITS = ("train", "val", "test")


def variants(
    check: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Prepare --task's data, train this variant one step: does it work? "
            "neuralforecast: each of that library's models, which takes minutes.",
        ),
    ] = None,
    task: TaskName = "demo",
    data_dir: DataDir = None,
    json: Json = False,
    supervised_by: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """List the variants that come with tuner."""
    from tuner.spec.study_file import builtin_variants, load_study_file

    if supervised_by is not None:
        from tuner.worker.process import end_with

        end_with(supervised_by, signal.SIGKILL)
    if check == LIBRARY:
        return check_library(task, data_folder(data_dir), json=json)
    if check is not None:
        return _check(check, task, data_dir, json=json)
    files = [load_study_file(name) for name in builtin_variants()]
    if json:
        rows = [
            {
                "name": file.name,
                "title": file.title,
                "core_change": file.core_change,
                "why": file.why.strip(),
                "source": file.source,
                "defaults": file.defaults.values(),
                "space": file.space.model_dump(mode="json", exclude_none=True),
            }
            for file in files
        ]
        print_json({"variants": rows})
        return 0
    from rich.table import Table

    from tuner.display.terminal import make_console

    table = Table("variant", "core change", "why", "source", title="Variants", show_lines=True)
    for file in files:
        table.add_row(file.name, file.core_change, " ".join(file.why.split()), file.source)
    make_console().print(table)
    return 0


def _check(variant: str, task: str, data_dir: Path | None, *, json: bool) -> int:
    """What a launch would meet: the study file, the task,
    its data, and one step of the network's training.
    """
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.spec.study_file import load_study_file

    file = load_study_file(variant)
    if file.program is not None:
        return _check_program(file, task, json=json)
    file.named_files()
    loaded = load_task(task)
    if problem := file.space.input_size_problem(loaded.definition()):
        raise UsageError(f"{variant}: {problem}")
    prepared = prepare(loaded, data_dir=data_folder(data_dir))
    # What a class of the user's own prints is not part of the document.
    with printed_to_stderr(wanted=json):
        with nothing_collected():
            from tuner.models.own import methods_not_used
            from tuner.models.registry import pooling_of, unused_parts
            from tuner.training.one_step import train_one_step

        architecture = file.architecture()
        unused = methods_not_used(architecture)
        try:
            seen = train_one_step(
                architecture, file.default_hyperparameters(), file.training, prepared
            )
        except UsageError as error:
            raise with_its_place(error, variant, file, prepared.shapes) from error
        findings = seen.findings
        if library_class(file.model) is not None:  # nobody here will change that class
            findings = replace(findings, dead_parameters=(), ignored_inputs=())
        said = [*unused_parts(architecture, prepared.shapes), *findings.notices(file.model)]
        said += seen.term.notices() if seen.term else ()
        if pooled := pooling_of(architecture, prepared.shapes, file.default_hyperparameters()):
            said.append(pooled)
        said += choices_that_fail(file, prepared.shapes)
        said += batch_sizes_that_fail(file, prepared)
    if json:
        print_json(
            _document(file, prepared, seen) | {"unused_methods": list(unused), "notices": said}
        )
        return 0
    _say_checked(file, task, prepared, seen)
    for line in said:
        note(line)
    return 0


def _windows(prepared: PreparedData) -> dict[str, int]:
    return {name: len(getattr(prepared, name).starts) for name in SPLITS}


def _document(file: StudyFile, prepared: PreparedData, seen: OneStep) -> dict[str, Any]:
    return {
        "name": file.name,
        "model": file.model,
        "parameters": seen.parameters,
        "task": prepared.task.name,
        "data_hash": prepared.data_hash,
        "series": list(prepared.series),
        "windows": _windows(prepared),
        "step": {"windows": seen.windows, "loss": seen.loss},
        **({"loss_term": seen.term.as_dict()} if seen.term else {}),
        **seen.findings.as_dict(),
    }


def _say_checked(file: StudyFile, task: str, prepared: PreparedData, seen: OneStep) -> None:
    say(
        f"{file.name}: {file.model} works, {seen.parameters:,} parameters at its defaults on task "
        f"{task}"
    )
    counted = ", ".join(f"{number:,} {name}" for name, number in _windows(prepared).items())
    say(f"checked: the data ({len(prepared.series)} series; windows: {counted}),")
    say(
        f"  one training step on {seen.windows} of them: forward, loss {seen.loss:.4g}, backward, "
        "update"
    )
    if seen.term is not None:
        say(f"  the term {seen.term.name} of its loss: {seen.term.in_words()}")


def _check_program(file: StudyFile, task: str, *, json: bool) -> int:
    """What a launch would meet where a program trains: three short runs of it."""
    from tuner.data.task import load_task
    from tuner.spec.definition import StudyDefinition

    program = file.program
    assert program is not None, "it has one"
    program.check()
    on = load_task(task)
    definition = StudyDefinition.of(
        file,
        task=on.definition(),
        data_hash="0" * 64,  # nothing is stored
        training=file.training,
        mql_split=on.usual_split.value,
    )
    with nothing_collected():
        from tuner.trial.program.check_program import check_program

        found = check_program(definition)
    if json:
        print_json(
            {
                "name": file.name,
                "model": file.model,
                "command": list(program.command),
                "clock": program.clock,
                "task": on.name,
                "epochs": found.epochs,
                "setup_s": found.setup_s,
                "s_per_epoch": found.s_per_epoch,
                "ignores_seed": found.ignores_seed,
                "ignores_hyperparameters": found.ignores_hyperparameters,
                "notices": list(found.notices),
            }
        )
        return 0
    say(f"{file.name}: {program.in_words()} works, by the clock {program.clock}")
    say(
        f"checked: three runs of {found.epochs} epochs, {found.setup_s:.3g} s to set up and "
        f"{found.s_per_epoch:.3g} s an epoch: the default on two seeds, and other hyperparameters"
    )
    for line in found.notices:
        note(line)
    return 0
