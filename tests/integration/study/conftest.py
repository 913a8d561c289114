"""What tests of studies have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.changed_exports import exports
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url

__all__ = ["exports", "here"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Database]:
    """A database for what is the same on each kind."""
    opened = open_database(parse_url(f"sqlite:///{tmp_path}/here.db"))
    yield opened
    opened.close()
