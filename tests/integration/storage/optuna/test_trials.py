"""Reading a study's trials: of none that is not there, and in nobody's way."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy import text

from tests.support.small_study import definition
from tuner.storage.database import open_database
from tuner.storage.sqlite import SQLITE_TIMEOUT_S
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume


def test_a_study_that_is_not_there_is_told_apart_from_one_without_trials(study: OpenStudy) -> None:
    with pytest.raises(KeyError):
        study.database.optuna.get_all_trials(12345)


def test_a_failed_read_is_raised_as_optuna_raises_it(study: OpenStudy) -> None:
    with study.database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE study_user_attributes RENAME TO gone"))
    with pytest.raises(StorageInternalError):
        study.database.optuna.get_study_user_attrs(study.study_id)


def test_reading_sqlite_waits_for_no_writer(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    study = create_or_resume(database, "small", definition(), trials=3)
    holder = sqlite3.connect(tmp_path / "tuner.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    reader = threading.Thread(target=study.optuna.get_trials, daemon=True)
    reader.start()
    reader.join(SQLITE_TIMEOUT_S - 5)  # in which the writer's lock would be waited for
    assert not reader.is_alive()
    holder.rollback()
    holder.close()
    database.close()
