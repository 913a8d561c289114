"""`tuner variants`: which architectures there are, what each changes, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import Json, TaskName
from tuner.cli.output import print_json


def variants(
    check: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Build this variant once for --task and say whether it works."),
    ] = None,
    task: TaskName = "demo",
    json: Json = False,
) -> int:
    """List the variants that come with tuner."""
    from tuner.study import builtin_variants, load_study_file

    if check is not None:
        return _check(check, task, json=json)
    files = [load_study_file(name) for name in builtin_variants()]
    if json:
        rows = [
            {
                "name": file.name,
                "title": file.title,
                "core_change": file.core_change,
                "why": file.why.strip(),
                "source": file.source,
                "defaults": file.defaults.model_dump(),
                "space": file.space.model_dump(),
            }
            for file in files
        ]
        print_json({"variants": rows})
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("variant", "core change", "why", "source", title="Variants", show_lines=True)
    for file in files:
        table.add_row(file.name, file.core_change, " ".join(file.why.split()), file.source)
    Console().print(table)
    return 0


def _check(variant: str, task: str, *, json: bool) -> int:
    from tuner.data.task import load_task, shapes
    from tuner.models.registry import build_model
    from tuner.study import load_study_file

    file = load_study_file(variant)
    model = build_model(file.architecture(), shapes(load_task(task)), file.default_hyperparameters())
    parameters = sum(p.numel() for p in model.parameters())
    if json:
        print_json({"name": file.name, "model": file.model, "parameters": parameters})
    else:
        typer.echo(f"{file.name}: {file.model} works, {parameters:,} parameters at its defaults on task {task}")
    return 0
