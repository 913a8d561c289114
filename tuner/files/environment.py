"""The environment variables that stand in for flags of the command line."""

from __future__ import annotations

from collections.abc import Mapping

STORAGE_VARIABLE = "TUNER_STORAGE"
"""The database's address: workers get it so, for it may hold a password."""
DATA_VARIABLE = "TUNER_DATA_DIR"
"""The folder with a task's data."""
LOCK_VARIABLE = "TUNER_LOCK_DIR"
"""The folder of the device locks, where containers or their like share a device."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process gets that runs the user's own code: it has no business with the database."""
    secrets = (STORAGE_VARIABLE, "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")
    return {name: text for name, text in environment.items() if name not in secrets}
