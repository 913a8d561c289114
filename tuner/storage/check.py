"""Looking a database over: reachable, of which versions, how full, and at one with itself; and
putting right what other programs changed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.study import StudyDirection
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, Row, Select, Table, func, inspect, select, text, update

from tuner.config import StopReason, Value
from tuner.errors import StorageError
from tuner.files.durable import write_durably
from tuner.files.plain import UNREADABLE, excerpt
from tuner.spec.definition import stored_definition
from tuner.spec.membership import ATTRIBUTE as MEMBERSHIP
from tuner.spec.membership import stored_membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.ranges import held
from tuner.spec.space import SearchSpace
from tuner.storage import schema
from tuner.storage.database import reachable
from tuner.storage.dialects import database_now, of
from tuner.storage.optuna import private as theirs
from tuner.storage.optuna.trials import ran_with, user_attributes
from tuner.storage.queue.epochs import EPOCHS
from tuner.storage.queue.verifications import RUNS
from tuner.storage.records import ATTEMPTS, DamagedRowError, TrialResult, cell, read_rows
from tuner.storage.schema import OF_A_VARIANT, RUN, TRIAL, epochs, studies, work, workers
from tuner.storage.url import DatabaseUrl

# What other programs changed of our trials in Optuna's tables: found by our own record, and put
# right again.


SHOWN = 3
"""Of what is other, in one line."""
_ROUNDING = 1e-9
"""Of a parameter on its way through a database, as a share of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A trial of which Optuna's row is not what was recorded."""

    study_id: int
    trial_id: int
    number: int
    what: str
    """What is other, in words."""
    result: TrialResult
    params: Mapping[str, Value]
    distributions: Mapping[str, BaseDistribution]


def changed_trials(connection: Connection) -> Iterator[Changed]:
    """The trials with a result that Optuna was told, and has otherwise now, or no more. What cannot
    be read is passed over: others name the damage.
    """
    c = work.c
    told = (c.kind == TRIAL) & (c.state == "finished") & c.told.is_(True)
    there = theirs.has_study(studies.c.study_id)
    known = select(studies.c.study_id, studies.c.definition).where(there)
    for study_id, definition in connection.execute(known.order_by(studies.c.study_id)).all():
        try:
            space = stored_definition("", definition).space
        except StorageError:
            continue
        own = space.stored()
        found = _stored(connection, study_id)
        query = select(work).where(told & (c.study_id == study_id)).order_by(c.trial_number)
        for row in connection.execute(query).all():
            try:
                (attempt,) = read_rows(ATTEMPTS, work, [row])
                result = attempt.result
                assert result is not None, "a finished attempt has one"
                failed = result.recorded.stopped_by == StopReason.ERROR  # it need not have had any
                params = {} if failed else ran_with(attempt, result, space)
            except DamagedRowError:
                continue
            recorded = _recorded(row.trial_number, result, params, own)
            what = _differences(found.get(row.trial_id), recorded, recorded | params)
            if what:
                ids = {"study_id": study_id, "trial_id": row.trial_id, "number": row.trial_number}
                yield Changed(**ids, what=what, result=result, params=params, distributions=own)


def restore(connection: Connection, changed: Changed) -> bool:
    """Write the recorded result to Optuna's tables; False where the trial's row is gone, and
    another trial has its number.
    """
    c = theirs.TRIALS.c
    mine = c.trial_id == changed.trial_id
    query = select(c.number, theirs.as_stored(c.state)).where(mine).with_for_update()
    row = connection.execute(query).first()
    same = (c.study_id == changed.study_id) & (c.number == changed.number)
    free = connection.execute(select(c.trial_id).where(same)).first() is None
    if row is None:
        if not free:
            return False
        made = {"trial_id": changed.trial_id, "state": TrialState.RUNNING}
        theirs.insert_trial(connection, changed.study_id, changed.number, **made)
    elif row.number != changed.number and free:
        connection.execute(update(theirs.TRIALS).where(mine).values(number=changed.number))
    state = TrialState.__members__.get(row[1]) if row is not None else TrialState.RUNNING
    theirs.write_result(connection, changed.trial_id, changed.result, found=state)
    if changed.params:
        own = changed.distributions
        theirs.set_parameters(connection, changed.trial_id, changed.params, own)
    return True


def _recorded(
    number: int,
    result: TrialResult,
    params: Mapping[str, Value],
    own: Mapping[str, BaseDistribution],
) -> dict[str, Any]:
    """What Optuna's tables have to have of a trial, by name."""
    found: dict[str, Any] = {"number": number, "state": result.state.name}
    found["values"] = tuple(result.values or ())
    for name, value in params.items():
        found[name] = held(value, own[name])
        found[f"range of {name}"] = distribution_to_json(own[name])
    for name, value in result.recorded.to_flat().items():
        found[f"attribute {name}"] = json.dumps(value)
    return found


def _stored(connection: Connection, study_id: int) -> dict[int, dict[str, Any]]:
    """What they do have of the trials of a study by their ids: whatever others wrote there."""
    c = theirs.TRIALS.c
    mine = c.study_id == study_id
    query = select(c.trial_id, theirs.as_stored(c.number), theirs.as_stored(c.state)).where(mine)
    found: dict[int, dict[str, Any]] = {}
    for trial_id, number, state in connection.execute(query):
        found[trial_id] = {"number": number, "state": state, "values": ()}

    def rows(table: Table, *columns: str) -> Iterator[tuple[dict[str, Any], Sequence[Any]]]:
        raw = [theirs.as_stored(table.c[name]) for name in columns]
        ids = table.c.trial_id.in_(select(c.trial_id).where(mine))
        for row in connection.execute(select(table.c.trial_id, *raw).where(ids).order_by(*raw)):
            if row[0] in found:  # else it was made since
                yield found[row[0]], row[1:]

    ours = ("param_name", "param_value", "distribution_json")
    for trial, (name, value, distribution) in rows(theirs.PARAMS, *ours):
        trial[name] = theirs.external(value, distribution)
        trial[f"range of {name}"] = distribution
    for trial, (key, value) in rows(theirs.TRIAL_USER, "key", "value_json"):
        trial[f"attribute {key}"] = value
    for trial, (_, value, kind) in rows(theirs.VALUES, "objective", "value", "value_type"):
        known = theirs.models.TrialValueModel.TrialValueType.__members__.get(kind)
        read = theirs.models.TrialValueModel.stored_repr_to_value
        trial["values"] += (f"{value} ({kind})" if known is None else read(value, known),)
    return found


def _differences(
    trial: Mapping[str, Any] | None, recorded: Mapping[str, Any], true: Mapping[str, Any]
) -> str:
    """In words, with the `true` values of what was recorded; empty where all is as it was."""
    if trial is None:
        return "its row is gone"
    other = [name for name in recorded if not _same(trial.get(name), recorded[name])]
    said = []
    for name in other[:SHOWN]:
        verb = "are" if name == "values" else "is"
        there = _shown(trial.get(name))
        said.append(f"its {name} {verb} {there}, recorded {_shown(true[name])}")
    return " and ".join(said + ["others"] * (len(other) > SHOWN))


def _same(there: Any, recorded: Any) -> bool:
    if isinstance(recorded, tuple):
        both = isinstance(there, tuple) and len(there) == len(recorded)
        return both and all(map(_same, there, recorded))
    if isinstance(recorded, int | float) and isinstance(there, int | float):
        return there == recorded or math.isclose(there, recorded, rel_tol=_ROUNDING)
    return bool(there == recorded) or _canonical(there) == _canonical(recorded)


def _canonical(text: Any) -> str:
    """A text of JSON as Python writes it: NaN is not equal to itself."""
    try:
        return json.dumps(json.loads(text))
    except UNREADABLE:
        return str(text)


def _shown(value: Any) -> str:
    """Whatever it is that somebody stored."""
    values = value if isinstance(value, tuple) else (value,)
    return excerpt(", ".join(map(str, values)) or "none")


# Studies of ours that another program deleted from Optuna's tables: what is left of them is
# saved, then removed.


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
    for table in (studies, work, epochs):
        ids = table.c.study_id
        gone = select(ids).where(~theirs.has_study(ids)).distinct()
        found |= dict.fromkeys(connection.scalars(gone), "")
    known = select(studies.c.study_id, studies.c.definition).where(studies.c.study_id.in_(found))
    for study_id, definition in connection.execute(known):
        found[study_id] = _described(definition)
    c = work.c
    at_work = (c.state == "running") & (c.leased_until > database_now())
    orphans = []
    for study_id, what in sorted(found.items()):
        mine = select(func.count()).select_from(work).where(c.study_id == study_id)
        results = connection.execute(mine.where(c.state == "finished")).scalar_one()
        running = connection.execute(mine.where(at_work)).scalar_one()
        orphans.append(Orphan(study_id=study_id, what=what, results=results, running=running))
    return orphans


def save(connection: Connection, orphan: Orphan, folder: Path) -> Path:
    """Write all that is left of a study to a new file in `folder`, and say which.

    Raises:
        StorageError: the file cannot be written.
    """
    tables: dict[str, Any] = {}
    for table in (studies, work, epochs, workers):
        left = select(table).where(table.c.study_id == orphan.study_id)
        rows = connection.execute(left).mappings()
        tables[table.name.removeprefix(schema.PREFIX)] = [dict(row) for row in rows]
    document = {"format": "tuner orphan", "version": 1, "study_id": orphan.study_id}
    text = json.dumps(document | {"tables": tables}, separators=(",", ":")).encode()
    endings = (f"-{number}" if number else "" for number in itertools.count())
    names = (f"deleted-study-{orphan.study_id}{end}.json" for end in endings)
    path = next(folder / name for name in names if not (folder / name).exists())
    try:
        write_durably(path, text)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}), so nothing of study "
            f"{orphan.study_id} is removed"
        ) from None
    return path


def _described(definition: str) -> str:
    try:
        data = json.loads(definition)
        return f" ({data['variant']} on {data['task']['name']})"
    except (ValueError, KeyError, TypeError):
        return ""


SECOND_LOOK_S = 1.0
"""Between two looks: what a worker is just doing is no fault, and gone by the second."""

_SHOWN = 5
_LINES = 20

Level = Literal["error", "notice"]
"""An error is not right, a notice passes by itself."""
Faults = dict[str, tuple[Level, set[str]]]
"""By the sentence that says what it is, of `n` things, which are `which`."""


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
        optuna_version = theirs.current_version(engine)
        expected_optuna = theirs.wanted_version() or ""
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
        made_by = "'tuner db init' or the first 'tuner launch' makes them"
        yield Finding("error", f"there are no tuner tables here; {made_by}")
        return
    if (problem := schema.mismatch(version)) is not None:
        yield Finding("error", f"this database {problem}")
    if optuna != expected_optuna:
        upgrade = "pip install --upgrade optuna, or: optuna storage upgrade --storage URL"
        yield Finding(
            "error",
            f"Optuna's tables have version {optuna}, the Optuna installed here works with "
            f"{expected_optuna}: upgrade the older of the two ({upgrade})",
        )


def _counts(engine: Engine) -> dict[str, int]:
    """Rows of every table of ours, and work and trials by their state."""
    found: dict[str, int] = {}
    c = work.c
    work_by_state = select(c.kind, c.state, func.count()).group_by(c.kind, c.state)
    trials_by_state = select(theirs.as_stored(theirs.TRIALS.c.state), func.count()).where(_OF_OURS)
    with engine.connect() as connection:
        for table in schema.metadata.sorted_tables:
            rows = connection.scalar(select(func.count()).select_from(table))
            found[table.name.removeprefix(schema.PREFIX)] = int(rows or 0)
        for kind, state, number in connection.execute(work_by_state):
            found[f"{kind}s_of_work_{state}"] = number
        for state, number in connection.execute(trials_by_state.group_by(theirs.TRIALS.c.state)):
            found[f"trials_{str(state).lower()}"] = number
    del found["schema"]
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
            which = ", ".join(lasting[:_SHOWN]) + ", …" * (len(lasting) > _SHOWN)
            findings.append(Finding(level, what.format(n=len(lasting), which=which)))
    return findings


def _damaged(engine: Engine) -> Iterator[Finding]:
    """What cannot be read, a line for each record; of a study that is all damaged the first."""
    with engine.connect() as connection:
        names = theirs.names_by_id(connection)
        for row in connection.execute(select(studies).where(OF_A_VARIANT)).all():
            if (name := names.get(row.study_id)) is None:
                continue  # it was deleted, which is told apart
            found = list(dict.fromkeys(_damaged_in(connection, name, row)))
            if len(found) > _LINES:
                found[_LINES:] = [f"{name}: more of it is damaged than these {_LINES} lines"]
            for what in found:
                yield Finding("error", what)


def _quick_check(engine: Engine) -> Iterable[Finding]:
    """SQLite's own look at its file; other databases look after their files themselves."""
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        said = str(connection.execute(text("PRAGMA quick_check(1)")).scalar_one())
    if said != "ok":
        said = " ".join(said.split())
        yield Finding("error", f"the file is damaged: {said}; go back to a backup")


def _damaged_in(connection: Connection, name: str, row: Row[Any]) -> Iterator[str]:
    """Of one study: what it is, how it is searched, of which group it is, and its budget; its
    trials, epochs and verification runs.
    """
    space, study_id = None, row.study_id
    with contextlib.suppress(StorageError):  # which is told below
        space = stored_definition(name, row.definition).space
    place = (user_attributes(connection, study_id) or {}).get(MEMBERSHIP)
    d = theirs.DIRECTIONS.c
    directions = select(theirs.as_stored(d.direction)).where(d.study_id == study_id)
    yield from _told(name, stored_definition, name, row.definition)
    yield from _told(name, SearchPolicy.from_json, row.policy, name)
    yield from _told(name, stored_membership, name, place)
    yield from _told(name, _budget, row.budget)
    for direction in connection.execute(directions).scalars():
        yield from _told(name, _direction, direction)
    mine = select(work).where(work.c.study_id == study_id)
    curves = select(epochs).where(epochs.c.study_id == study_id)
    yield from _of_rows(connection, name, mine.where(work.c.kind == TRIAL), _attempts, space)
    yield from _of_rows(connection, name, curves, read_rows, EPOCHS, epochs)
    yield from _of_rows(connection, name, mine.where(work.c.kind == RUN), read_rows, RUNS, work)


def _of_rows(
    connection: Connection, name: str, query: Select[Any], read: Callable[..., object], *given: Any
) -> Iterator[str]:
    rows = connection.execute(query).all()
    try:
        read(*given, rows)
    except DamagedRowError:
        for row in rows:  # one by one
            yield from _told(name, read, *given, [row])


def _told(name: str, read: Callable[..., object], *given: Any) -> Iterator[str]:
    """The sentence where `read` finds damage in the study of this name."""
    try:
        read(*given)
    except DamagedRowError as error:
        yield f"{name}{error.of_study}"
    except StorageError as error:
        yield str(error)


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


def faults(engine: Engine) -> Faults:
    """Every kind of fault, with the trials, runs or studies that have it now."""
    with engine.connect() as connection:
        names = theirs.names_by_id(connection)

        def described(study: int, number: int | None, seed: int | None = None) -> str:
            name = names.get(study, f"study {study}")
            trial = f"{name} trial {'?' if number is None else number}"
            return trial if seed is None else f"{trial} seed {seed}"

        found: Faults = {}
        for what, query in _errors().items():
            found[what] = "error", {described(*row) for row in connection.execute(query)}
        for what, query in _notices().items():
            found[what] = "notice", {described(*row) for row in connection.execute(query)}
        found[_CHANGED] = "error", set()
        for each in changed_trials(connection):
            found[_CHANGED][1].add(f"{described(each.study_id, each.number)}: {each.what}")
        found[_DELETED] = "notice", {each.described for each in orphaned(connection)}
        return found


_CHANGED = (
    "trials that other programs changed in Optuna's tables: {n} ({which}); tuner goes by its own "
    "record, and 'tuner db check --repair' restores it there"
)
_DELETED = (
    "studies that were deleted by other means than tuner: {n} ({which}); 'tuner db check --repair' "
    "writes what is left of them to files and removes it"
)
_OF_OURS = theirs.TRIALS.c.study_id.in_(select(studies.c.study_id))
_PIECES = select(work.c.study_id, work.c.trial_number, work.c.seed)
"""Of trials, which have no seed, and of runs."""
_OPTUNAS = select(theirs.TRIALS.c.study_id, theirs.TRIALS.c.number).where(_OF_OURS)
_CLAIMED = select(work.c.trial_id).where(work.c.kind == TRIAL)
_HELD = _CLAIMED.where(work.c.state.in_(["running", "finished"]))
_STRAY = theirs.strays(None, _HELD, _CLAIMED)


def _errors() -> dict[str, Select[Any]]:
    """By the sentence that says what it is, the pieces of work of which that is so."""
    c, s, t = work.c, studies.c, theirs.TRIALS.c
    results = _PIECES.where(c.kind == TRIAL, c.state == "finished")
    runs = _PIECES.where(c.kind == RUN)
    nobodys = c.token.is_(None) | (c.worker == "")
    configured = (t.study_id == c.study_id) & (t.number == c.trial_number)
    known = select(s.study_id).where(OF_A_VARIANT, theirs.has_study(s.study_id))
    gone = c.study_id.in_(known) & ~select(t.trial_id).where(configured).exists()
    return {
        "results that Optuna was not told yet: {n} ({which}); the next worker or launch tells it": (
            results.where(theirs.has_study(c.study_id), c.told.is_(False))
        ),
        "trials that run for nobody: {n} ({which}); the next worker or launch takes them back": (
            _OPTUNAS.where(_STRAY)
        ),
        "trials with two results: {n} ({which})": (
            results.group_by(c.study_id, c.trial_number, c.seed).having(func.count() > 1)
        ),
        "verification runs that run for nobody: {n} ({which})": (
            runs.where(c.state == "running", nobodys)
        ),
        "finished verification runs without a result: {n} ({which})": (
            runs.where(c.state == "finished", c.result.is_(None))
        ),
        "verification runs of trials that are not there: {n} ({which})": runs.where(gone),
    }


def _notices() -> dict[str, Select[Any]]:
    c = work.c
    t = theirs.TRIALS.c
    ended = t.trial_id.not_in(_HELD) & (t.state != TrialState.WAITING) & ~_STRAY
    overdue = (c.state == "running") & (c.leased_until < database_now())
    return {
        "trials that other programs made or ended: {n} ({which}); tuner ignores them": (
            _OPTUNAS.where(ended)
        ),
        "leases that ran out: {n} ({which}); the next worker or launch takes the work back": (
            _PIECES.where(overdue)
        ),
    }
