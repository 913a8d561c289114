"""`tuner doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import os

from tuner.cli.options import DataDir, Json, Storage, data_folder, storage_url
from tuner.cli.output import print_json


def doctor(storage: Storage = None, data_dir: DataDir = None, json: Json = False) -> int:
    """Check this machine: packages, GPUs, data, database."""
    from tuner.cli.machine import examine

    checks = examine(
        storage=storage_url(storage), data_dir=data_folder(data_dir), environment=os.environ
    )
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
