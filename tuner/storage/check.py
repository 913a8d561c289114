"""Looking a database over: reachable, of which versions, how full, and whether what it holds agrees
with itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, Select, func, select, text

from tuner.storage import schema
from tuner.storage.database import reachable
from tuner.storage.database_clock import database_now
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.changed import changed_trials
from tuner.storage.optuna.private import SCRIPTS, STUDIES, TRIALS
from tuner.storage.orphans import orphaned
from tuner.storage.schema import claims, verifications
from tuner.storage.url import DatabaseUrl

SECOND_LOOK_S = 1.0
"""Between two looks: what a worker is just doing is no fault, and gone by the second."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a database that a person should know. An `error` is not right, a `notice`
    passes by itself.
    """

    level: Literal["error", "notice"]
    what: str


@dataclass(frozen=True, slots=True)
class DatabaseReport:
    """What was found. Versions are None where the tables are missing, and so are the counts."""

    storage: str
    server: str
    version: int | None
    expected_version: int
    optuna_version: str | None
    expected_optuna_version: str
    counts: dict[str, int]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"healthy": self.healthy} | asdict(self)


def check_database(address: DatabaseUrl) -> DatabaseReport:
    """Look at the database and change nothing.

    Raises:
        StorageError: it is not there, or cannot be reached.
    """
    with reachable(address) as engine:
        with engine.connect() as connection:
            there = schema.exists(connection)
            version = schema.version_of(connection)
            server = _server(connection)
            lacking = schema.lacking(connection) if version == schema.SCHEMA_VERSION else []
            optuna_version = MigrationContext.configure(connection).get_current_revision()
        expected_optuna = ScriptDirectory(SCRIPTS).get_current_head() or ""
        findings = list(_of_versions(there, version, optuna_version, expected_optuna))
        findings += [Finding("error", line) for line in lacking]
        counts = {}
        if not findings:
            counts = _counts(engine)
            findings = _integrity(engine)
    return DatabaseReport(
        storage=str(address),
        server=server,
        version=version,
        expected_version=schema.SCHEMA_VERSION,
        optuna_version=optuna_version,
        expected_optuna_version=expected_optuna,
        counts=counts,
        findings=tuple(findings),
    )


def _server(connection: Connection) -> str:
    version = connection.dialect.server_version_info or ()
    name = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "mysql": "MySQL", "mariadb": "MariaDB"}
    is_mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
    dialect = "mariadb" if is_mariadb else connection.dialect.name
    return f"{name.get(dialect, dialect)} {'.'.join(map(str, version))}".strip()


def _of_versions(
    there: bool, version: int | None, optuna: str | None, expected_optuna: str
) -> Iterable[Finding]:
    if not there:
        yield Finding(
            "error",
            "there are no tuner tables here; 'tuner db init' or the first 'tuner launch' makes "
            "them",
        )
        return
    mismatch = schema.describe_mismatch(version)
    if mismatch is not None:
        yield Finding("error", mismatch)
    if optuna != expected_optuna:
        yield Finding(
            "error",
            f"Optuna's tables have version {optuna}, the Optuna installed here works with "
            f"{expected_optuna}: upgrade "
            "the older of the two (pip install --upgrade optuna, or: optuna storage upgrade "
            "--storage URL)",
        )


def _counts(engine: Engine) -> dict[str, int]:
    """Rows of every table of ours, and trials and claims by their state."""
    tables = {name.removeprefix("tuner_"): table for name, table in schema.metadata.tables.items()}
    del tables["schema"]
    with engine.connect() as connection:
        found = {
            name: _number(connection, select(func.count()).select_from(table))
            for name, table in tables.items()
        }
        by_claim = select(claims.c.state, func.count()).group_by(claims.c.state)
        found |= {f"claims_{state}": number for state, number in connection.execute(by_claim).all()}
        ours = TRIALS.c.study_id.in_(select(schema.studies.c.study_id))
        by_trial = select(TRIALS.c.state, func.count()).where(ours).group_by(TRIALS.c.state)
        found |= {
            f"trials_{state.name.lower()}": number
            for state, number in connection.execute(by_trial).all()
        }
    return dict(sorted(found.items()))


def _integrity(engine: Engine) -> list[Finding]:
    first = _look(engine)
    if not any(found for _, found in first.values()):
        return list(_quick_check(engine))
    time.sleep(SECOND_LOOK_S)
    findings = list(_quick_check(engine))
    for what, (level, now) in _look(engine).items():
        lasting = sorted(now & first[what][1])
        if lasting:
            more = ", …" if len(lasting) > _SHOWN else ""
            findings.append(
                Finding(
                    level, what.format(n=len(lasting), which=", ".join(lasting[:_SHOWN]) + more)
                )
            )
    return findings


def _look(engine: Engine) -> dict[str, tuple[Literal["error", "notice"], set[str]]]:
    """Every kind of fault, as a sentence, with the trials, claims or studies that have it."""
    mine = TRIALS.c.study_id.in_(select(schema.studies.c.study_id))
    claimed = select(claims.c.trial_id).where(claims.c.trial_id.is_not(None))
    held = claimed.where(claims.c.state.in_(["running", "finished"]))
    number = select(TRIALS.c.study_id, TRIALS.c.number)
    stray = optuna_rows.strays(None, held, claimed)
    orphans = number.where(mine & stray)
    others = number.where(
        mine & TRIALS.c.trial_id.not_in(held) & (TRIALS.c.state != TrialState.WAITING) & ~stray
    )
    finished = select(claims.c.study_id, claims.c.trial_number).where(claims.c.state == "finished")
    there_too = optuna_rows.has_study(claims.c.study_id)
    untold = finished.where(there_too & claims.c.told.is_(False))
    row_of = select(TRIALS.c.trial_id).where(TRIALS.c.trial_id == claims.c.trial_id).exists()
    gone = finished.where(there_too & ~row_of)
    twice = finished.group_by(claims.c.study_id, claims.c.trial_number).having(func.count() > 1)
    overdue = select(claims.c.study_id, claims.c.trial_number).where(
        (claims.c.state == "running") & (claims.c.leased_until < database_now())
    )
    v = verifications.c
    runs = select(v.study_id, v.trial_number, v.seed)
    runs_overdue = runs.where((v.state == "running") & (v.leased_until < database_now()))
    nobodys = (
        v.token.is_(None) | v.worker.is_(None) | v.leased_until.is_(None) | v.claimed_at.is_(None)
    )
    runs_for_nobody = runs.where((v.state == "running") & nobodys)
    runs_of_nothing = runs.where((v.state == "finished") & v.result.is_(None))
    configured = (TRIALS.c.study_id == v.study_id) & (TRIALS.c.number == v.trial_number)
    there = v.study_id.in_(select(STUDIES.c.study_id))
    runs_gone = runs.where(there & ~select(TRIALS.c.trial_id).where(configured).exists())
    with engine.connect() as connection:
        names = {row.study_id: row.study_name for row in connection.execute(select(STUDIES)).all()}

        def of_trial(study: int, number: int | None) -> str:
            return f"{names.get(study, f'study {study}')} trial {'?' if number is None else number}"

        def trials(query: Select[Any]) -> set[str]:
            rows = connection.execute(query).all()
            return {of_trial(study, number) for study, number in rows}

        def verified(query: Select[Any]) -> set[str]:
            rows = connection.execute(query).all()
            return {f"{of_trial(study, number)} seed {seed}" for study, number, seed in rows}

        return {
            "results that Optuna was not told yet: {n} ({which}); the next worker or launch tells "
            "it": (
                "error",
                trials(untold),
            ),
            "trials that run for nobody: {n} ({which}); "
            "the next worker or launch takes them back": (
                "error",
                trials(orphans),
            ),
            "trials that other programs changed in Optuna's tables: {n} ({which}); tuner goes by "
            "its own record, and "
            "'tuner db check --repair' restores it there": (
                "error",
                {
                    f"{of_trial(each.study_id, each.number)}: {each.what}"
                    for each in changed_trials(connection)
                },
            ),
            "trials that other programs made or ended: {n} ({which}); tuner ignores them": (
                "notice",
                trials(others),
            ),
            "results of trials that are not there: {n} ({which}); 'tuner db check --repair' puts "
            "the trials back": (
                "error",
                trials(gone),
            ),
            "trials with two results: {n} ({which})": ("error", trials(twice)),
            "leases that ran out: {n} ({which}); the next worker or launch takes the trials back": (
                "notice",
                trials(overdue),
            ),
            "verification runs that run for nobody: {n} ({which})": (
                "error",
                verified(runs_for_nobody),
            ),
            "finished verification runs without a result: {n} ({which})": (
                "error",
                verified(runs_of_nothing),
            ),
            "verification runs of trials that are not there: {n} ({which})": (
                "error",
                verified(runs_gone),
            ),
            "leases of verification runs that ran out: {n} ({which}); the next 'tuner verify' "
            "takes the runs back": (
                "notice",
                verified(runs_overdue),
            ),
            "studies that were deleted by other means than tuner: {n} ({which}); 'tuner db check "
            "--repair' writes what "
            "is left of them to files and removes it": (
                "notice",
                {each.described for each in orphaned(connection)},
            ),
        }


def _quick_check(engine: Engine) -> Iterable[Finding]:
    """SQLite's own look at its file; other databases look after their files themselves."""
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        said = str(connection.execute(text("PRAGMA quick_check(1)")).scalar_one())
    if said != "ok":
        yield Finding(
            "error", f"the file is damaged: {' '.join(said.split())}; go back to a backup"
        )


def _number(connection: Connection, query: Select[Any]) -> int:
    number: int = connection.execute(query).scalar_one()
    return number
