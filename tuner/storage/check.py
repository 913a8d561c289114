"""Looking a database over: reachable, of which versions,
how full, and whether what it holds agrees with itself.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, Row, Select, Table, func, inspect, select, text

from tuner.errors import StorageError
from tuner.files.durable import write_durably
from tuner.spec.definition import stored_definition
from tuner.spec.membership import ATTRIBUTE as MEMBERSHIP
from tuner.spec.membership import stored_membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import SearchSpace
from tuner.storage import schema
from tuner.storage.changed import changed_trials
from tuner.storage.database import reachable
from tuner.storage.dialects import database_now, of
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.own_trials import ran_with
from tuner.storage.optuna.private import (
    DIRECTIONS,
    STUDIES,
    TRIALS,
    as_stored,
    current_version,
    names_by_id,
    wanted_version,
)
from tuner.storage.optuna.trials import user_attributes
from tuner.storage.queue.epochs import EPOCHS
from tuner.storage.queue.verifications import RUNS
from tuner.storage.records import (
    ATTEMPTS,
    DamagedRowError,
    cell,
    read_rows,
)
from tuner.storage.schema import RUN, TRIAL, epochs, studies, work, workers
from tuner.storage.url import DatabaseUrl

# Studies of ours that another program deleted from Optuna's tables: what is left of them is
# saved, then removed.


_TABLES = {
    "studies": studies,
    "work": work,
    "epochs": epochs,
    "workers": workers,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What is left of a study: our rows of it."""

    study_id: int
    what: str
    """Variant and task, where its definition can be read."""
    results: int
    running: int
    """Trials and verification runs whose lease has not run out: somebody is still at it."""

    @property
    def described(self) -> str:
        return f"study {self.study_id}{self.what}: {self.results} results"


def orphaned(connection: Connection) -> list[Orphan]:
    """Studies of which we have rows, and Optuna has not."""
    found: dict[int, str] = {}
    query = select(studies.c.study_id, studies.c.definition).where(
        ~optuna_rows.has_study(studies.c.study_id)
    )
    for study_id, definition in connection.execute(query):
        found[study_id] = _described(definition)
    for table in (work, epochs):
        c = table.c.study_id
        rows = connection.execute(select(c).where(~optuna_rows.has_study(c)).distinct())
        for study_id in rows.scalars():
            found.setdefault(study_id, "")
    return [_orphan(connection, study_id, what) for study_id, what in sorted(found.items())]


def save(connection: Connection, orphan: Orphan, folder: Path) -> Path:
    """Write all that is left of a study to a new file in `folder`, and say which.

    Raises:
        StorageError: the file cannot be written.
    """
    document: dict[str, Any] = {
        "format": "tuner orphan",
        "version": 1,
        "study_id": orphan.study_id,
        "tables": {},
    }
    for name, table in _TABLES.items():
        rows = connection.execute(
            select(table).where(table.c.study_id == orphan.study_id)
        ).mappings()
        document["tables"][name] = [dict(row) for row in rows]
    text = json.dumps(document, separators=(",", ":")).encode()
    number = 0
    while (
        path := folder / f"deleted-study-{orphan.study_id}{f'-{number}' if number else ''}.json"
    ).exists():
        number += 1
    try:
        write_durably(path, text)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}), so nothing of study "
            f"{orphan.study_id} is removed"
        ) from None
    return path


def remove(connection: Connection, orphan: Orphan) -> None:
    """Delete our rows of it."""
    schema.forget_study(connection, orphan.study_id)


def _orphan(connection: Connection, study_id: int, what: str) -> Orphan:
    found = {"results": 0, "running": 0}
    c = work.c
    at_work = (c.state == "running") & (c.leased_until > database_now())
    for name, condition in (("results", c.state == "finished"), ("running", at_work)):
        query = select(func.count()).select_from(work).where(c.study_id == study_id, condition)
        found[name] = _number(connection, query)
    return Orphan(study_id=study_id, what=what, **found)


def _described(definition: str) -> str:
    try:
        data = json.loads(definition)
        return f" ({data['variant']} on {data['task']['name']})"
    except (ValueError, KeyError, TypeError):
        return ""


SECOND_LOOK_S = 1.0
"""Between two looks: what a worker is just doing is no fault, and gone by the second."""

_Damage = tuple[str, str]
"""The name of a study, and a sentence that says what of it cannot be read."""
_SHOWN = 5
_LINES = 20

Level = Literal["error", "notice"]
"""An error is not right, a notice passes by itself."""
Faults = dict[str, tuple[Level, set[str]]]
"""By the sentence that says what it is, of `n` things, which are `which`."""

OF_OURS = TRIALS.c.study_id.in_(select(studies.c.study_id))
CLAIMED = select(work.c.trial_id).where(work.c.kind == TRIAL)
HELD = CLAIMED.where(work.c.state.in_(["running", "finished"]))
TRIALS_OF_OURS = select(work.c.study_id, work.c.trial_number).where(work.c.kind == TRIAL)
RESULTS = TRIALS_OF_OURS.where(work.c.state == "finished")


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
        optuna_version, expected_optuna = current_version(engine), wanted_version() or ""
        findings = list(_of_versions(there, version, optuna_version, expected_optuna))
        findings = findings or list(_altered(engine))
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
    """Rows of every table of ours, and work and trials by their state."""
    tables = {name.removeprefix("tuner_"): table for name, table in schema.metadata.tables.items()}
    del tables["schema"]
    with engine.connect() as connection:
        found = {
            name: _number(connection, select(func.count()).select_from(table))
            for name, table in tables.items()
        }
        c = work.c
        by_state = select(c.kind, c.state, func.count()).group_by(c.kind, c.state)
        for kind, state, number in connection.execute(by_state).all():
            found[f"{kind}s_of_work_{state}"] = number
        ours = TRIALS.c.study_id.in_(select(studies.c.study_id))
        by_trial = select(as_stored(TRIALS.c.state), func.count()).where(ours)
        by_trial = by_trial.group_by(TRIALS.c.state)
        found |= {
            f"trials_{str(state).lower()}": number
            for state, number in connection.execute(by_trial).all()
        }
    return dict(sorted(found.items()))


def _altered(engine: Engine) -> Iterator[Finding]:
    found = inspect(engine)
    tables = set(found.get_table_names())
    for table in schema.metadata.sorted_tables:
        if table.name not in tables:
            yield Finding("error", f"the table {table.name} is gone; go back to a backup")
            continue
        there = {each["name"] for each in found.get_columns(table.name)}
        for column in sorted(set(table.c.keys()) - there):
            what = f"{table.name} has lost its column {column}: somebody altered it"
            yield Finding("error", f"{what}; go back to a backup")


def _integrity(engine: Engine) -> list[Finding]:
    first = faults(engine)
    findings = [*_quick_check(engine), *_damaged(engine)]
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


def _damaged(engine: Engine) -> Iterator[Finding]:
    """What cannot be read, a line for each record; of a study that is all damaged the first."""
    shown: Counter[str] = Counter()
    with engine.connect() as connection:
        ours = set(connection.execute(select(studies.c.study_id)).scalars())
        names = {id_: name for id_, name in names_by_id(connection).items() if id_ in ours}
        found = _damaged_studies(connection, names), _damaged_rows(connection, names)
        for name, what in dict.fromkeys(itertools.chain(*found)):
            shown[name] += 1
            if shown[name] <= _LINES:
                yield Finding("error", what)
            elif shown[name] == _LINES + 1:
                yield Finding("error", f"{name}: more of it is damaged than these {_LINES} lines")


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


def _damaged_studies(connection: Connection, names: Mapping[int, str]) -> Iterator[_Damage]:
    """What each study is, how it is searched, of which group it is, and its budget."""
    s = studies.c
    for row in connection.execute(select(studies).where(s.study_id.in_(names))).all():
        name = names[row.study_id]
        yield from _told(name, stored_definition, name, row.definition)
        yield from _told(name, SearchPolicy.from_json, row.policy, name)
        place = (user_attributes(connection, row.study_id) or {}).get(MEMBERSHIP)
        yield from _told(name, stored_membership, name, place)
        yield from _told(name, _budget, row.budget)
    d = DIRECTIONS.c
    query = select(d.study_id, as_stored(d.direction)).where(d.study_id.in_(names))
    for study_id, direction in connection.execute(query):
        yield from _told(names[study_id], _direction, direction)


def _damaged_rows(connection: Connection, names: Mapping[int, str]) -> Iterator[_Damage]:
    """Trials, epochs and verification runs."""
    mine = select(studies.c.study_id, studies.c.definition).where(studies.c.study_id.in_(names))
    for study_id, stored in connection.execute(mine).all():
        space, name = None, names[study_id]
        with contextlib.suppress(StorageError):  # which was told before
            space = stored_definition(name, stored).space
        trials: _Read = work, TRIAL, functools.partial(_attempts, space)
        for table, kind, read in (trials, *_READS):
            of_study = table.c.study_id == study_id
            if kind is not None:
                of_study &= table.c.kind == kind
            rows = connection.execute(select(table).where(of_study)).all()
            try:
                read(rows)
            except DamagedRowError:
                for row in rows:  # one by one
                    yield from _told(name, read, [row])


def _told(name: str, read: Callable[..., object], *given: Any) -> Iterator[_Damage]:
    """The study and the sentence where `read` finds damage."""
    try:
        read(*given)
    except DamagedRowError as error:
        yield name, f"{name}{error.of_study}"
    except StorageError as error:
        yield name, str(error)


def _budget(stored: Any) -> None:
    with cell("tuner_studies.budget"):
        operator.index(stored)


def _direction(stored: Any) -> None:
    with cell("study_directions.direction"):
        StudyDirection[stored]


def _attempts(space: SearchSpace | None, rows: Sequence[Row[Any]]) -> None:
    for each in read_rows(ATTEMPTS, work, rows):
        result = each.result
        ran = result is not None and result.state not in (TrialState.FAIL, TrialState.WAITING)
        if result is not None and ran and each.state == "finished" and space is not None:
            ran_with(each, result, space)


_Read = tuple[Table, str | None, Callable[[Sequence[Row[Any]]], object]]
_READS: tuple[_Read, ...] = (
    (epochs, None, functools.partial(read_rows, EPOCHS, epochs)),
    (work, RUN, functools.partial(read_rows, RUNS, work)),
)


def faults(engine: Engine) -> Faults:
    """Every kind of fault, with the trials, runs or studies that have it now."""
    with engine.connect() as connection:
        rows = connection.execute(select(STUDIES)).all()
        reader = _Reader(connection, {row.study_id: row.study_name for row in rows})
        return (
            _of_trials(reader)
            | _of_work(reader)
            | _of_verification_runs(reader)
            | _of_studies(reader)
        )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Says of rows what they are, with the names of their studies."""

    connection: Connection
    names: Mapping[int, str]

    def trial(self, study: int, number: int | None) -> str:
        name = self.names.get(study, f"study {study}")
        return f"{name} trial {'?' if number is None else number}"

    def trials(self, query: Select[Any]) -> set[str]:
        """Of rows (study, number)."""
        rows = self.connection.execute(query).all()
        return {self.trial(study, number) for study, number in rows}

    def runs(self, query: Select[Any]) -> set[str]:
        """Of rows (study, number, seed)."""
        rows = self.connection.execute(query).all()
        return {f"{self.trial(study, number)} seed {seed}" for study, number, seed in rows}


def _of_trials(reader: _Reader) -> Faults:
    untold = RESULTS.where(optuna_rows.has_study(work.c.study_id), work.c.told.is_(False))
    number = select(TRIALS.c.study_id, TRIALS.c.number)
    stray = optuna_rows.strays(None, HELD, CLAIMED)
    orphans = number.where(OF_OURS & stray)
    others = number.where(
        OF_OURS & TRIALS.c.trial_id.not_in(HELD) & (TRIALS.c.state != TrialState.WAITING) & ~stray
    )
    changed = {
        f"{reader.trial(each.study_id, each.number)}: {each.what}"
        for each in changed_trials(reader.connection)
    }
    return {
        "results that Optuna was not told yet: {n} ({which}); the next worker or launch tells it": (
            "error",
            reader.trials(untold),
        ),
        "trials that run for nobody: {n} ({which}); the next worker or launch takes them back": (
            "error",
            reader.trials(orphans),
        ),
        "trials that other programs changed in Optuna's tables: {n} ({which}); tuner goes by "
        "its own record, and 'tuner db check --repair' restores it there": ("error", changed),
        "trials that other programs made or ended: {n} ({which}); tuner ignores them": (
            "notice",
            reader.trials(others),
        ),
    }


def _of_work(reader: _Reader) -> Faults:
    c = work.c
    twice = RESULTS.group_by(c.study_id, c.trial_number).having(func.count() > 1)
    overdue = TRIALS_OF_OURS.where(c.state == "running", c.leased_until < database_now())
    return {
        "trials with two results: {n} ({which})": ("error", reader.trials(twice)),
        "leases that ran out: {n} ({which}); the next worker or launch takes the trials back": (
            "notice",
            reader.trials(overdue),
        ),
    }


def _of_verification_runs(reader: _Reader) -> Faults:
    v = work.c
    runs = select(v.study_id, v.trial_number, v.seed).where(v.kind == RUN)
    nobodys = v.token.is_(None) | (v.worker == "")
    for_nobody = runs.where((v.state == "running") & nobodys)
    of_nothing = runs.where((v.state == "finished") & v.result.is_(None))
    configured = (TRIALS.c.study_id == v.study_id) & (TRIALS.c.number == v.trial_number)
    there = v.study_id.in_(select(STUDIES.c.study_id))
    gone = runs.where(there & ~select(TRIALS.c.trial_id).where(configured).exists())
    overdue = runs.where((v.state == "running") & (v.leased_until < database_now()))
    return {
        "verification runs that run for nobody: {n} ({which})": ("error", reader.runs(for_nobody)),
        "finished verification runs without a result: {n} ({which})": (
            "error",
            reader.runs(of_nothing),
        ),
        "verification runs of trials that are not there: {n} ({which})": (
            "error",
            reader.runs(gone),
        ),
        "leases of verification runs that ran out: {n} ({which}); the next 'tuner verify' "
        "takes the runs back": ("notice", reader.runs(overdue)),
    }


def _of_studies(reader: _Reader) -> Faults:
    return {
        "studies that were deleted by other means than tuner: {n} ({which}); 'tuner db check "
        "--repair' writes what is left of them to files and removes it": (
            "notice",
            {each.described for each in orphaned(reader.connection)},
        ),
    }
