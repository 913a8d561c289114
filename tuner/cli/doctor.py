"""`tuner doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import DataDir, Json, Storage, data_folder, storage_url
from tuner.cli.output import print_json

if TYPE_CHECKING:
    from tuner.cli.machine import Check


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
    from tuner.cli.machine import examine

    checks = examine(
        storage=storage_url(storage), data_dir=data_folder(data_dir), environment=os.environ
    )
    if on is not None:
        checks += _engine(on, storage_url(storage))
    healthy = all(check.level != "error" for check in checks)
    if json:
        print_json({"healthy": healthy, "checks": [check.as_dict() for check in checks]})
    else:
        from rich.table import Table

        from tuner.display.terminal import line, make_console

        table = Table("check", "state", "what was found", title="tuner doctor")
        colours = {"ok": "green", "notice": "yellow", "error": "red"}
        for check in checks:
            table.add_row(check.name, line(check.level, style=colours[check.level]), check.detail)
        make_console().print(table)
    return 0 if healthy else 1


def _engine(on: str, storage: str) -> list[Check]:
    """What is to be said of an engine. Raises UsageError where it is none."""
    from tuner.launch.engines.engines import KUBERNETES, RAY, refuse_unknown

    refuse_unknown(on)
    if on.startswith(RAY):
        from tuner.cli.ray_checks import examine_ray

        return examine_ray(on, storage=storage)
    if on == KUBERNETES:
        from tuner.cli.machine import Check

        there = "" if shutil.which("kubectl") else ", which is not on the PATH here"
        what = "a launch says what its template is filled in with (--print); kubectl applies it"
        return [Check("Kubernetes", "notice" if there else "ok", what + there)]
    from tuner.cli.slurm_checks import examine_slurm

    return examine_slurm(storage=storage)
