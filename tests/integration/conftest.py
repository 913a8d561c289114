"""Fixtures of the integration tests. Each is described where it is made, in tests/support."""

from tests.support.browser import screenshots
from tests.support.claims import at_first_sight
from tests.support.damaged_rows import hurt, whole_database
from tests.support.databases import database, database_url, postgres, study
from tests.support.in_process_worker import opened
from tests.support.planned_confirmations import recorded_once, searched, unverified
from tests.support.recorded_studies import recorded_database
from tests.support.repeated_configurations import repeated
from tests.support.slurm_cluster import slurm, slurm_session
from tests.support.small_disk import small_disk

__all__ = [
    "at_first_sight",
    "database",
    "database_url",
    "hurt",
    "opened",
    "postgres",
    "recorded_database",
    "recorded_once",
    "repeated",
    "screenshots",
    "searched",
    "slurm",
    "slurm_session",
    "small_disk",
    "study",
    "unverified",
    "whole_database",
]
