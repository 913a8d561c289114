"""`tuner doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from tuner.cli.options import DataDir, Json, Storage, data_folder, storage_url
from tuner.cli.output import print_json

Engine = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="ENGINE", help="And this engine: ray, ray://HOST:PORT, slurm or k8s."
    ),
]


def doctor(
    on: Engine = None, storage: Storage = None, data_dir: DataDir = None, json: Json = False
) -> int:
    """Check this machine: packages, GPUs, data, database."""
    from tuner.cli.machine import examine, examine_engine

    checks = examine(
        storage=storage_url(storage), data_dir=data_folder(data_dir), environment=os.environ
    )
    if on is not None:
        checks += examine_engine(on, storage=storage_url(storage))
    healthy = all(check.level != "error" for check in checks)
    if json:
        print_json({"healthy": healthy, "checks": [asdict(check) for check in checks]})
    else:
        from rich.table import Table

        from tuner.display.terminal import line, make_console

        table = Table("check", "state", "what was found", title="tuner doctor")
        colours = {"ok": "green", "notice": "yellow", "error": "red"}
        for check in checks:
            table.add_row(check.name, line(check.level, style=colours[check.level]), check.detail)
        make_console().print(table)
    return 0 if healthy else 1
