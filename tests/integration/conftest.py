"""Fixtures of the integration tests. Each is described where it is made, in tests/support."""

from tests.support.browser import screenshots
from tests.support.claims import at_first_sight
from tests.support.databases import database, database_url, postgres, study
from tests.support.in_process_worker import opened
from tests.support.planned_confirmations import searched, unverified
from tests.support.recorded_studies import recorded_database

__all__ = [
    "at_first_sight",
    "database",
    "database_url",
    "opened",
    "postgres",
    "recorded_database",
    "screenshots",
    "searched",
    "study",
    "unverified",
]
