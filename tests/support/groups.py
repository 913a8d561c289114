"""Groups of searches, made as a launch makes them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from tests.support.small_study import definition
from tuner.spec.definition import StudyDefinition
from tuner.storage.database import Database
from tuner.study.create import MEMBERSHIP
from tuner.study.open import OpenStudy, open_study
from tuner.study.relaunch import Launched, Said, open_studies

THREE = ["small", "small-2", "small-3"]


def launch(
    database: Database, name: str = "small", asked: StudyDefinition | None = None, **said: Any
) -> list[Launched]:
    return open_studies(database, {name: asked or definition()}, Said(**said), device_model="A")


def names(launched: list[Launched]) -> list[str]:
    return [each.study.name for each in launched]


def from_before(study: OpenStudy) -> OpenStudy:
    """The study as an older tuner made it: nothing says where it belongs."""
    with study.database.engine.begin() as connection:
        connection.execute(
            text(
                "DELETE FROM study_user_attributes WHERE study_id = :id AND key = :key"
            ).bindparams(id=study.study_id, key=MEMBERSHIP)
        )
    return open_study(study.database, study.name)
