"""Version 1: studies, claims, epochs, workers. Where the history begins."""

from __future__ import annotations

revision = "1"
down_revision = None


def upgrade() -> None:
    """Nothing to do: there was nothing before it."""
