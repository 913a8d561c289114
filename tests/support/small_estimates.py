"""A small search, whose sizes are soon measured, and the command that tells what it takes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from typer.testing import CliRunner

from tests.support.small_study import STUDY_TOML
from tuner.cli.app import app
from tuner.data.task import Task
from tuner.spec.definition import StudyDefinition

SIZES = STUDY_TOML.replace("{ low = 256, high = 256 }", "{ low = 64, high = 128 }").replace(
    "batch_size = 256", "batch_size = 64"
)


@dataclasses.dataclass(frozen=True)
class Small:
    definition: StudyDefinition
    task: Task
    folder: Path

    @property
    def words(self) -> list[str]:
        return ["--variant", str(self.folder / "s.toml"), "--task", str(self.folder / "t.toml")]


def told(words: list[str]) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document: dict = json.loads(result.stdout)  # type: ignore[type-arg]
    return document
