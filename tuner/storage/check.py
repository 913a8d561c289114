"""Looking a database over: reachable, of which versions,
how full, and whether what it holds agrees with itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, Select, func, select, text

from tuner.storage import schema
from tuner.storage.database import reachable
from tuner.storage.dialects import of
from tuner.storage.integrity import Level, damaged, faults
from tuner.storage.optuna.private import SCRIPTS, TRIALS, as_stored
from tuner.storage.schema import claims
from tuner.storage.url import DatabaseUrl

SECOND_LOOK_S = 1.0
"""Between two looks: what a worker is just doing is no fault, and gone by the second."""

_SHOWN = 5
_LINES = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a database that a person should know. An `error` is not right, a `notice`
    passes by itself.
    """

    level: Level
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
    return f"{of(connection.dialect).title} {'.'.join(map(str, version))}".strip()


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
    if (problem := schema.mismatch(version)) is not None:
        yield Finding("error", f"this database {problem}")
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
        by_trial = select(as_stored(TRIALS.c.state), func.count()).where(ours)
        by_trial = by_trial.group_by(TRIALS.c.state)
        found |= {
            f"trials_{str(state).lower()}": number
            for state, number in connection.execute(by_trial).all()
        }
    return dict(sorted(found.items()))


def _integrity(engine: Engine) -> list[Finding]:
    first = faults(engine)
    findings = [*_quick_check(engine), *_damage(engine)]
    if not any(found for _, found in first.values()):
        return findings
    time.sleep(SECOND_LOOK_S)
    for what, (level, now) in faults(engine).items():
        lasting = sorted(now & first[what][1])
        if lasting:
            more = ", …" if len(lasting) > _SHOWN else ""
            findings.append(
                Finding(
                    level, what.format(n=len(lasting), which=", ".join(lasting[:_SHOWN]) + more)
                )
            )
    return findings


def _damage(engine: Engine) -> Iterable[Finding]:
    """What cannot be read, a line each; of a study that is all damaged the first lines."""
    shown: Counter[int] = Counter()
    for each in damaged(engine):
        shown[each.study_id] += 1
        if shown[each.study_id] <= _LINES:
            yield Finding("error", each.described)
        elif shown[each.study_id] == _LINES + 1:
            yield Finding("error", f"{each.study}: more of it is damaged than these {_LINES} lines")


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
