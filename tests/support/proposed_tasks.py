"""A file as somebody has it, and the task that is proposed for it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tuner.cli.task_text import task_text
from tuner.data.prepare import PreparedData, prepare
from tuner.data.proposal.proposed_task import Proposal, propose, task_name
from tuner.data.proposal.sheet import Told, read_sheet
from tuner.data.task import load_task


def proposal_for(file: Path, told: Told | None = None) -> Proposal:
    told = told or Told()
    return propose(read_sheet(file, told), told, task_name(file))


def prepared_by(file: Path, proposal: Proposal, folder: Path) -> PreparedData:
    """Through the text, as a person would have it."""
    path = folder / "task.toml"
    path.write_text(task_text(proposal, file, path), encoding="utf-8")
    return prepare(load_task(str(path)), cache_dir=folder / "cache")


def lines_to(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def hourly(rows: int = 500) -> list[str]:
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    return ["ds,y", *(f"{time},{i * 7 % 13}.5" for i, time in enumerate(times))]
