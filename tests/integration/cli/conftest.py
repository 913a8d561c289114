"""What tests of the command line have in common."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.recorded_studies import RecordedDatabase


@pytest.fixture
def copied(recorded_database: RecordedDatabase, tmp_path: Path) -> Path:
    """A folder with the recorded studies where the default database is."""
    folder = tmp_path / "work"
    (folder / "storage").mkdir(parents=True)
    with (
        sqlite3.connect(recorded_database.path) as source,
        sqlite3.connect(folder / "storage" / "tuner.db") as target,
    ):
        source.backup(target)
    return folder
