"""Version 3: results of verification runs that came too late to count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    op.add_column("tuner_verifications", sa.Column("late", sa.Text()))
