"""A program's code run in this process, as if tuner had started it: what it is told lies in a file,
and what it tells is read as tuner reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tuner.data.task import load_task
from tuner.trial.program.program_process import EpochSaid, Final, Said, read_line


@dataclass
class Told:
    """The files of one trial."""

    folder: Path

    def said(self) -> list[Said]:
        return [read_line(line) for line in (self.folder / "report").read_bytes().splitlines()]

    def epochs(self) -> list[EpochSaid]:
        return [each for each in self.said() if isinstance(each, EpochSaid)]

    def final(self) -> Final | None:
        said = self.said()
        return said[-1] if said and isinstance(said[-1], Final) else None

    def stop(self) -> None:
        (self.folder / "stop").touch()


def tell(patch: pytest.MonkeyPatch, folder: Path, **changes: Any) -> Told:
    """Have this process be a program that tuner runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint").mkdir(exist_ok=True)
    document: dict[str, Any] = {
        "protocol": 1,
        "study": "told",
        "trial": 3,
        "seed": 7,
        "hyperparameters": {"rate": 0.05},
        "max_epochs": 3,
        "patience": 10,
        "min_delta": 1e-5,
        "clock": "process",
        "objectives": ["wall_clock_s", "test_mql"],
        "task": load_task("demo").definition(),
        "resume": None,
        "checkpoint_folder": str(folder / "checkpoint"),
    }
    (folder / "trial.json").write_text(json.dumps(document | changes))
    (folder / "report").write_text("")
    patch.setenv("TUNER_TRIAL", str(folder / "trial.json"))
    patch.setenv("TUNER_REPORT", str(folder / "report"))
    patch.setenv("TUNER_STOP", str(folder / "stop"))
    return Told(folder)
