"""Version 4: leases on devices, sources of users' own networks, what `auto` came to, and what is
known of hosts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"

_LONG_TEXT = sa.Text(1 << 24).with_variant(sa.Text(), "postgresql", "sqlite")


def upgrade() -> None:
    for name in ("boot_id", "torch_version", "tuner_version"):
        op.add_column("tuner_workers", sa.Column(name, sa.String(64)))
    op.add_column("tuner_workers", sa.Column("clock_skew_s", sa.Double()))
    _create_device_leases()
    op.create_table(
        "tuner_sources",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("content", _LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "tuner_backend_choices",
        sa.Column("study_id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("measured_for", sa.Text(), nullable=False),
        sa.Column("choice", sa.Text(), nullable=False),
        sa.Column("chosen_at", sa.Double(), nullable=False),
    )


def _create_device_leases() -> None:
    op.create_table(
        "tuner_device_leases",
        sa.Column("ticket", sa.Integer(), primary_key=True),
        sa.Column("device_key", sa.String(120), nullable=False),
        sa.Column("worker", sa.String(120), nullable=False),
        sa.Column("host", sa.String(120), nullable=False),
        sa.Column("domain", sa.String(64), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("leased_until", sa.Double(), nullable=False),
        sa.Column("disturbed", sa.String(200)),
        sa.UniqueConstraint("device_key", "worker", name="tuner_device_leases_once"),
    )
