"""The scenarios' figures as a page for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

QUESTION = "# What is lost when workers are killed and databases restarted?"
COMMAND = "make chaos   # python benchmarks/chaos/run.py"
ABOUT = (
    "A trial here sleeps a second; workers, supervisor, ledger and databases are the real ones. The chaos-*.json files hold "
    "every figure and every fault, to whom and when; `run.py` writes them and this page."
)
HEADER = "| what was done | asked for | recorded | lost claims | verdict |"
ASKED, RECORDED = ("budget", "planned_runs"), ("recorded_results", "runs_by_state")


def write_report(folder: Path) -> None:
    """README.md of all scenarios whose files are in the folder."""
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("chaos-*.json"))]
    (folder / "README.md").write_text("\n".join(page(documents)) + "\n", encoding="utf-8")


def page(documents: list[dict[str, Any]]) -> list[str]:
    ran = [each for each in documents if "skipped" not in each]
    broken = [each for each in ran if each["broken"]]
    if broken:
        answer = f"{len(broken)} of {len(ran)} scenarios broke a promise: see the table."
    else:
        answer = f"Nothing: every promise held, in all {len(ran)} scenarios."
    return [
        QUESTION,
        "",
        f"**{answer}**",
        "",
        "```",
        COMMAND,
        "```",
        "",
        ABOUT,
        f"Ran on {_dates(ran)}.",
        "",
        HEADER,
        "|---|---|---|---|---|",
        *map(_row, documents),
    ]


def _dates(documents: list[dict[str, Any]]) -> str:
    return " and ".join(sorted({each["date"] for each in documents}))


def _row(d: dict[str, Any]) -> str:
    if "skipped" in d:
        return f"| {d['about']} | | | | skipped: {d['skipped']} |"
    figures = d["figures"]
    claims = figures.get("claims_by_state", {})
    lost = figures.get("losses", claims.get("lost", 0))
    verdict = "held" if not d["broken"] else "broken: " + "; ".join(d["broken"])
    recorded = _first(figures, RECORDED) or str(claims.get("finished", ""))
    cells = (d["about"], _first(figures, ASKED), recorded, str(lost), verdict)
    return f"| {' | '.join(cells)} |"


def _first(figures: dict[str, Any], names: tuple[str, ...]) -> str:
    """The first of these figures that is there."""
    value = next((figures[name] for name in names if name in figures), "")
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    return str(value)
