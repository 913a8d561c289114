"""What tests of the command line have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded_studies import RecordedDatabase


@pytest.fixture
def copied(recorded_database: RecordedDatabase, tmp_path: Path) -> Path:
    """A folder with the recorded studies where the default database is."""
    folder = tmp_path / "work"
    recorded_database.copied_into(folder)
    return folder
