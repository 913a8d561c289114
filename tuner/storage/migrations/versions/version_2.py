"""Version 2: how a study is searched, epochs of several seeds,
what keeps a worker from working, and verification.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_KEY = ["study_id", "trial_number", "claim_id", "repeat", "epoch"]


def upgrade() -> None:
    op.add_column("tuner_studies", sa.Column("policy", sa.Text()))
    op.add_column("tuner_workers", sa.Column("note", sa.String(200)))
    _give_epochs_a_repeat()
    _create_verifications()


def _create_verifications() -> None:
    op.create_table(
        "tuner_verifications",
        sa.Column("run_id", sa.Integer(), primary_key=True),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("trial_number", sa.Integer(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("session", sa.String(32), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("state", sa.String(12), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(32)),
        sa.Column("worker", sa.String(120)),
        sa.Column("leased_until", sa.Double()),
        sa.Column("claimed_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.Column("result", sa.Text()),
        sa.UniqueConstraint("study_id", "trial_number", "seed", name="tuner_verifications_once"),
    )
    op.create_index("tuner_verifications_by_study", "tuner_verifications", ["study_id", "state"])


def _give_epochs_a_repeat() -> None:
    """Every epoch so far was of the first seed, number 0; the number becomes part of the key."""
    if op.get_context().dialect.name == "sqlite":
        _copy_epochs()
        return
    op.add_column(
        "tuner_epochs", sa.Column("repeat", sa.Integer(), nullable=False, server_default="0")
    )
    op.alter_column(
        "tuner_epochs",
        "repeat",
        server_default=None,
        existing_type=sa.Integer(),
        existing_nullable=False,
    )
    op.drop_constraint("tuner_epochs_pkey", "tuner_epochs", type_="primary")
    op.create_primary_key("tuner_epochs_pkey", "tuner_epochs", _KEY)


def _copy_epochs() -> None:
    """SQLite cannot change a key."""
    op.rename_table("tuner_epochs", "tuner_epochs_of_version_1")
    values: list[sa.Column[float]] = [
        sa.Column(name, sa.Double()) for name in ("train_loss", "val_loss", "learning_rate")
    ]
    op.create_table(
        "tuner_epochs",
        *(sa.Column(name, sa.Integer(), nullable=False) for name in _KEY),
        *values,
        sa.Column("elapsed_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(*_KEY),
    )
    kept = "study_id, trial_number, claim_id, epoch, train_loss, val_loss, learning_rate, elapsed_s"
    copied = f"SELECT {kept}, 0 FROM tuner_epochs_of_version_1"  # noqa: S608 - names of our own
    op.execute(f"INSERT INTO tuner_epochs ({kept}, repeat) {copied}")
    op.drop_table("tuner_epochs_of_version_1")
