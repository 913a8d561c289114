"""Our own tables, beside Optuna's in the same database, under the prefix `tuner_`.

- `tuner_studies`: what a study is (its definition and hash), and its budget of trials.
- `tuner_work`: the work of each study, and what came of it: trials, and runs of trials on fresh
  seeds. Budget ticket, plan, lease, fencing token and result of an attempt stand in one row.
- `tuner_epochs`: the learning curves.
- `tuner_workers`: who is at work, on which device.
- `tuner_device_leases`: which lock folder's workers have a device, and who waits for it.
- `tuner_sources`: files with networks of users' own, by hash.
- `tuner_backend_choices`: what `auto` came to in a study, for each device and size of network.
- `tuner_schema`: the version of these tables.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    inspect,
    select,
)

SCHEMA_VERSION = 3
PREFIX = "tuner_"
"""Of our tables."""

metadata = MetaData()

schema = Table("tuner_schema", metadata, Column("version", Integer, nullable=False))

studies = Table(
    "tuner_studies",
    metadata,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("definition", Text, nullable=False),
    Column("definition_hash", String(64), nullable=False),
    Column("budget", Integer, nullable=False),
    Column("policy", Text, nullable=False),  # JSON: how the study is searched
    Column("device_model", String(200)),
    Column("created_at", Double, nullable=False),
)

FUNCTION = "function"
"""In place of a definition's hash: of a search over a function, or of a confirmation of somebody's
study, which have documents of their own."""
OF_A_VARIANT = studies.c.definition_hash != FUNCTION

TRIAL, RUN = "trial", "run"
"""Kinds of work: a trial, and its configuration run again on a fresh seed."""
work = Table(
    "tuner_work",
    metadata,
    Column("work_id", Integer, primary_key=True),
    Column("study_id", Integer, nullable=False),
    Column("kind", String(8), nullable=False),  # trial, run (of a trial, on a fresh seed), before
    Column("trial_number", Integer),
    # waiting, running, finished, returned, lost; a run that nobody needs is skipped
    Column("state", String(12), nullable=False),
    Column("token", String(32), unique=True),
    Column("worker", String(120), nullable=False, default=""),  # empty while it waits for one
    Column("claimed_at", Double, nullable=False, default=0.0),
    Column("leased_until", Double, nullable=False, default=0.0),  # on the database's clock
    Column("ended_at", Double),  # its training, or all of it
    Column("granted_s", Double),  # of the hours that studies share
    Column("had_s", Double, nullable=False, default=0.0),  # its device, by its last life sign
    Column("result", Text),  # JSON, written under the token before Optuna is told
    Column("told", Boolean, nullable=False, default=False),
    Column("trial_id", Integer),  # of a trial: Optuna's row
    Column("params", Text),  # JSON: true values; of a trial that waits those that were asked for
    Column("notes", Text),  # JSON: where a trial's come from, and what its sampler noted
    # Of a run. Those of a block share a seed and lie close together in time; those of a session
    # were planned together, are shuffled in `place`, and keep as JSON what was asked for.
    Column("seed", BigInteger),
    Column("block", Integer),
    Column("place", Integer),
    Column("session", String(32)),
    Column("plan", Text),
    Index("tuner_work_by_study", "study_id", "kind", "state", "trial_number"),
)
SAME_WORK = (work.c.study_id, work.c.kind, work.c.trial_number, work.c.seed)
"""What attempts at one piece of work share, and with those at no other."""
_BESIDE = ("trial_id", "params", "notes", "block", "place", "session", "plan")
PIECE = (*SAME_WORK, *(work.c[name] for name in _BESIDE))
"""All that they share."""

epochs = Table(
    "tuner_epochs",
    metadata,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("trial_number", Integer, primary_key=True, autoincrement=False),
    Column("work_id", Integer, primary_key=True, autoincrement=False),
    # which of the trial's seeds, from 0
    Column("repeat", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("train_loss", Double),
    Column("val_loss", Double),
    Column("learning_rate", Double),
    Column("elapsed_s", Double, nullable=False),
)

workers = Table(
    "tuner_workers",
    metadata,
    Column("worker", String(120), primary_key=True),
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("host", String(120), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("device", String(200), nullable=False),
    Column("device_uuid", String(120), nullable=False),
    Column("started_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("trial_number", Integer),
    Column("epoch", Integer),
    Column("val_loss", Double),
    Column("gpu_busy", Double),  # a share of the time on its clock so far
    Column("stopped", Boolean, nullable=False, default=False),
    Column("note", String(200)),  # what keeps it from working, e.g. a full disk
    Column("torch_version", String(64)),
    Column("tuner_version", String(64)),  # with its revision, where that is known
    Column("clock_skew_s", Double),  # how far its host's clock is ahead of the database's
)

device_leases = Table(
    "tuner_device_leases",
    metadata,
    Column("ticket", Integer, primary_key=True),  # the order of those who wait
    Column("device_key", String(120), nullable=False),  # one physical GPU or CPU core
    Column("worker", String(120), nullable=False),
    Column("host", String(120), nullable=False),
    Column("domain", String(64), nullable=False),  # whose lock files keep each other out
    Column("state", String(12), nullable=False),  # waiting, held
    Column("since", Double, nullable=False),  # when it began to wait, or to hold it
    Column("leased_until", Double, nullable=False),  # on the database's clock
    Column("disturbed", String(200)),  # who still trained there after another had got it
    UniqueConstraint("device_key", "worker", name="tuner_device_leases_once"),
)

SOURCE_LENGTH = 1 << 24
sources = Table(
    "tuner_sources",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("name", String(200), nullable=False),  # of the file, without its folder
    Column(
        "content", Text(SOURCE_LENGTH).with_variant(Text(), "postgresql", "sqlite"), nullable=False
    ),
    Column("created_at", Double, nullable=False),
)

backend_choices = Table(
    "tuner_backend_choices",
    metadata,
    Column("study_id", Integer, primary_key=True, autoincrement=False),
    Column("key", String(64), primary_key=True),  # SHA-256 of `measured_for`
    Column("measured_for", Text, nullable=False),  # JSON: sizes, device and torch
    Column("choice", Text, nullable=False),  # JSON: the backend, why, and what was measured
    Column("chosen_at", Double, nullable=False),
)


def forget_study(connection: Connection, study_id: int) -> None:
    """Delete all rows of a study from our tables."""
    for table in (studies, work, epochs, workers, backend_choices):
        connection.execute(delete(table).where(table.c.study_id == study_id))


def create(connection: Connection) -> None:
    """All tables, or the rest of them where their creation was cut short. To be called under the
    initialisation lock. A database of another version is refused: whoever changes the tables raises
    `SCHEMA_VERSION`.
    """
    metadata.create_all(connection)
    connection.execute(insert(schema).values(version=SCHEMA_VERSION))


def exists(connection: Connection) -> bool:
    """True when our tables are there."""
    return inspect(connection).has_table(schema.name)


def version_of(connection: Connection) -> int | None:
    """The version of our tables; None where they are missing,
    or where their creation was cut short.
    """
    if not exists(connection):
        return None
    return connection.execute(select(schema.c.version)).scalar_one_or_none()


def mismatch(found: int | None) -> str | None:
    """What is wrong with tables of version `found`, and the remedy, after the name of their
    database; None when they are of this tuner's.
    """
    if found == SCHEMA_VERSION:
        return None
    if found is None:
        return "lacks some of the tuner tables, whose creation was cut short; run: tuner db init"
    return (
        "was made by another version of tuner; export its studies with the version that made it "
        "(tuner study export), then import them here"
    )
