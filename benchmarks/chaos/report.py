"""The scenarios' figures as one table for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEAD = """# What was done to workers and databases, and what was lost

Written by `make chaos` (`benchmarks/chaos/run.py`) from the chaos-*.json files beside it, which hold every fault, to
whom and when. A trial here sleeps a second; workers, supervisor, ledger and databases are the real ones. Leases are
short, so that a frozen worker outlasts its own.
"""


def write_report(folder: Path) -> None:
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("chaos-*.json"))]
    (folder / "chaos.md").write_text(
        "\n".join([HEAD, *(_section(each) for each in documents)]), encoding="utf-8"
    )


def _section(d: dict[str, Any]) -> str:
    title = f"## {d['scenario']}\n\n{d['about']} Seed {d['seed']}, {d['cores']} cores, leases of {d['lease_s']:g} s, {d['date']}."
    if "skipped" in d:
        return f"{title}\n\nSkipped: {d['skipped']}.\n"
    rows = "\n".join(
        f"| {key.replace('_', ' ')} | {_cell(value)} |" for key, value in d["figures"].items()
    )
    verdict = (
        "Every promise held." if not d["broken"] else "Broken: " + "; ".join(d["broken"]) + "."
    )
    return f"{title}\n\n**{verdict}**\n\n| | |\n|---|---|\n{rows}\n"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return str(value)
