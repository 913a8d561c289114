"""Groups of searches, made as a launch makes them."""

from __future__ import annotations

from typing import Any

from tests.support.small_study import definition
from tuner.spec.definition import StudyDefinition
from tuner.storage.database import Database
from tuner.study.relaunch import Launched, Said, open_studies

THREE = ["small", "small-2", "small-3"]


def launch(
    database: Database, name: str = "small", asked: StudyDefinition | None = None, **said: Any
) -> list[Launched]:
    return open_studies(database, {name: asked or definition()}, Said(**said), device_model="A")


def names(launched: list[Launched]) -> list[str]:
    return [each.study.name for each in launched]
