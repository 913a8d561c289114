"""Fixtures of the integration tests. Databases and a small study: databases.py. Recorded studies:
recorded.py. A worker in this process: working.py.
"""

from browser import screenshots
from claiming import at_first_sight
from databases import database, database_url, postgres, study
from recorded import recorded_database
from working import opened

__all__ = [
    "at_first_sight",
    "database",
    "database_url",
    "opened",
    "postgres",
    "recorded_database",
    "screenshots",
    "study",
]
