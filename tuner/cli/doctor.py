"""`tuner doctor`: what works here, and what to do about what does not."""

from __future__ import annotations

import os

from tuner.cli.options import DataDir, Json, Storage, data_folder, storage_url
from tuner.cli.output import print_json


def doctor(storage: Storage = None, data_dir: DataDir = None, json: Json = False) -> int:
    """Check this machine: packages, GPUs, data, database."""
    from tuner.doctor import examine

    checks = examine(storage=storage_url(storage), data_dir=data_folder(data_dir), environment=os.environ)
    healthy = all(check.level != "error" for check in checks)
    if json:
        print_json({"healthy": healthy, "checks": [check.as_dict() for check in checks]})
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("check", "state", "what was found", title="tuner doctor")
        colours = {"ok": "green", "notice": "yellow", "error": "red"}
        for check in checks:
            table.add_row(check.name, f"[{colours[check.level]}]{check.level}[/]", check.detail)
        Console().print(table)
    return 0 if healthy else 1
