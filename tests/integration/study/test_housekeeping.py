"""Studies renamed and deleted: whole or not at all, whatever fails and whoever is at work."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from sqlalchemy import Connection, event, select, text, update
from sqlalchemy.exc import DBAPIError

from tests.support.claims import RESULT, start, while_locked
from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.forked_cli import run_here
from tests.support.groups import THREE, launch
from tests.support.recorded_studies import RecordedDatabase
from tests.support.small_study import definition
from tuner.errors import StudyGoneError, UsageError
from tuner.spec.policy import Registered
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import Database, open_database
from tuner.storage.optuna.private import models
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.records import Claim
from tuner.storage.url import DatabaseUrl, parse_url
from tuner.study.housekeeping import delete_studies, referring, rename_study
from tuner.study.open import OpenStudy, open_study, register_retune, registered_in
from tuner.study.own_file import put_source
from tuner.study.snapshot import open_group
from tuner.worker.paths import Outbox, WorkerPaths, deliver, forget_study

ROWS = [EpochRow(1, 0.5, 0.4, 1e-3, 0.1)]
TABLES = [*schema.metadata.sorted_tables, *models.BaseModel.metadata.sorted_tables]
Dump = dict[str, list[tuple[Any, ...]]]


def dump(database: Database) -> Dump:
    """All that is in the database."""
    with database.engine.connect() as connection:
        return {t.name: sorted(map(tuple, connection.execute(select(t))), key=repr) for t in TABLES}


def run_of(study: OpenStudy, plan: dict[str, Any]) -> PlannedRun:
    return PlannedRun(
        study_id=study.study_id,
        trial_number=0,
        params=definition().defaults.as_dict(),
        seed=7,
        block=0,
        place=0,
        session="s",
        plan=plan,
    )


@pytest.fixture
def group(database: Database) -> list[OpenStudy]:
    """Three searches that share device hours; the first has of everything that a study can have."""
    for each in launch(database, searches=3, trials=4, policy={"max_gpu_s": 100.0}):
        each.study.bind_device_model("A")
    first, second, third = (open_study(database, name) for name in THREE)
    claim, _ = start(first)
    first.epochs.write(0, claim.work_id, ROWS)
    assert first.ledger.finish(claim, RESULT.noting(total_s=40.0))
    put_source(database.engine, "net.py", b"class Net: pass")
    frozen = {"default": 0, "margin": 0.01, "known": 3}
    both = {"small": frozen, "small-2": frozen}
    plan = {"kind": "confirmation", "confirms": both, "reference": "small", "seeds": 1}
    first.verifications.add([run_of(first, plan)])
    second.verifications.add([run_of(second, plan)])
    register_retune(first, Registered(searches=3))
    third.set_policy(third.policy().but(against="small"))
    return [first, second, third]


def healthy(database: Database) -> bool:
    return check_database(database.address).findings == ()


def test_a_deleted_study_leaves_nothing_behind(
    database: Database, group: list[OpenStudy], tmp_path: Path
) -> None:
    first, *others = group
    with pytest.raises(
        UsageError, match=r"small-2, small-3 would be left; delete all of them: group:small"
    ):
        delete_studies(database, ["small"])
    optuna.create_study(study_name="theirs", storage=database.optuna)
    with pytest.raises(UsageError, match="'theirs' was not made by tuner"):
        delete_studies(database, ["theirs"])
    paths = WorkerPaths(tmp_path)
    for each in group:
        (paths.checkpoints(each.key()) / "trial-0-x").mkdir(parents=True)
        Outbox(paths.outbox, each.key()).put_epochs(Claim(1, "t", 0, 1), ROWS)
    numbers = [each.study_id for each in (first, others[0])]
    before = dump(database)
    keys = delete_studies(database, ["small-3"])
    for key in [*keys, *delete_studies(database, ["small-2", "small"])]:
        forget_study(paths, key)
    assert list(tmp_path.rglob("*.json")) == list(tmp_path.rglob("trial-*")) == []
    assert before["tuner_sources"], "somebody's class, which no definition here names"
    for table, rows in dump(database).items():
        if table in ("tuner_studies", "tuner_work", "tuner_epochs", "trials"):
            assert rows == [], (table, numbers)
    assert [row[1] for row in dump(database)["studies"]] == ["theirs"]
    assert healthy(database)


@SQLITE_ALONE
def test_hours_of_a_deleted_study_stay_spent(database: Database, group: list[OpenStudy]) -> None:
    claim, _ = start(group[2])
    assert group[2].ledger.finish(claim, RESULT.noting(total_s=30.0))
    hours = GpuHours.of(database.engine, group[0].policy(), "small")
    assert hours is not None
    assert hours.spent_s() == 70.0
    delete_studies(database, ["small-3"])
    now = GpuHours.of(database.engine, group[0].policy(), "small")
    assert now is not None
    assert (now.names, now.spent_s()) == (("small", "small-2"), 70.0)
    assert healthy(database)


@SQLITE_ALONE
def test_what_refers_to_a_renamed_study_follows(
    database: Database, group: list[OpenStudy], tmp_path: Path
) -> None:
    paths = WorkerPaths(tmp_path)
    claim, _ = start(group[0])
    Outbox(paths.outbox, group[0].key()).put_result(claim, RESULT)
    group[0].ledger.reap(worker="ann", state="returned")
    optuna.create_study(study_name="theirs", storage=database.optuna)
    for taken in ("small", "small-2", "theirs"):
        with pytest.raises(UsageError, match="name it otherwise"):
            rename_study(database, "small", taken)
    assert referring(database, "small") == [
        "shares hours with small-2",
        "shares hours with small-3",
        "small-3 looks for its default's quality",
        "verified with small-2",
    ]
    rename_study(database, "small", "kept")
    now = open_study(database, "kept")
    assert (now.made_as, now.key()) == ("small", group[0].key())
    members = open_group(database, "kept").members
    assert [each.name for each in members] == ["kept", "small-2", "small-3"]
    for each in members:
        assert each.policy().gpu_shared == ("kept", "small-2", "small-3")
        for run in each.verifications.runs():
            assert set(run.plan["confirms"]) == {"kept", "small-2"}
            assert run.plan["reference"] == "kept"
    assert members[2].policy().against == "kept"
    assert registered_in(database, "kept") == Registered(searches=3)
    assert "small" not in "".join(map(repr, dump(database)["tuner_studies"])).replace("small-", "")
    deliver([now], paths)
    assert list(paths.outbox.iterdir()) == [], "what waited for the old name arrived"
    rename_study(database, "kept", "small")
    assert healthy(database)


@contextmanager
def failing_at(
    database: Database, number: int, fail: Callable[[Connection], None]
) -> Iterator[None]:
    """What is to happen before statement `number` that writes; at its commit, where it has none."""
    left = [number]

    def look(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith(("DELETE", "UPDATE", "INSERT")):
            left[0] -= 1
            if left[0] == 0:
                fail(connection)

    def at_commit(connection: Connection) -> None:
        if left[0] > 0:
            fail(connection)

    both: dict[str, Callable[..., Any]] = {"before_cursor_execute": look, "commit": at_commit}
    for when, what in both.items():
        event.listen(database.engine, when, what)
    try:
        yield
    finally:
        for when, what in both.items():
            event.remove(database.engine, when, what)


def cut_off(connection: Connection) -> None:
    """The server ends the session; an SQLite file's disk fails."""
    if connection.dialect.name == "postgresql":
        pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
        with connection.engine.connect() as other:
            other.execute(text(f"SELECT pg_terminate_backend({pid})"))
        return
    import sqlite3

    raise DBAPIError("DELETE", {}, sqlite3.OperationalError("disk I/O error"))


OPERATIONS: dict[str, Callable[[Database], object]] = {
    "delete": lambda database: delete_studies(database, THREE),
    "rename": lambda database: rename_study(database, "small", "kept"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_database_that_goes_away_midway_has_all_or_nothing(
    database: Database, group: list[OpenStudy], operation: str
) -> None:
    before = dump(database)
    for number in (3, 99):
        with failing_at(database, number, cut_off), pytest.raises(DBAPIError):
            OPERATIONS[operation](database)
        assert dump(database) == before
        assert healthy(database)
    OPERATIONS[operation](database)
    assert healthy(database)


def killed(url: str) -> None:
    database = open_database(parse_url(url))
    with failing_at(database, 99, lambda _: os._exit(9)):
        delete_studies(database, THREE)


def test_a_command_that_is_killed_midway_has_done_nothing(
    database_url: str, database: Database, group: list[OpenStudy]
) -> None:
    before = dump(database)
    database.close()
    process = multiprocessing.get_context("fork").Process(target=killed, args=(database_url,))
    process.start()
    process.join(60)
    assert process.exitcode == 9
    assert dump(database) == before
    delete_studies(database, THREE)
    assert healthy(database)


def deleted(address: DatabaseUrl) -> str:
    with closing(open_database(address)) as database:
        try:
            delete_studies(database, ["small"])
        except UsageError as error:
            return str(error)
        return "deleted"


def claimed(address: DatabaseUrl) -> str:
    with closing(open_database(address)) as database:
        try:
            claim = open_study(database, "small").ledger.claim("bob")
        except (StudyGoneError, UsageError) as error:
            return str(error)
        return "claimed" if claim else "nothing"


def either(address: DatabaseUrl, turns: Any) -> str:
    with turns.get_lock():
        turns.value += 1
        mine = turns.value
    return deleted(address) if mine % 2 else claimed(address)


def test_of_two_that_delete_at_once_one_does(study: OpenStudy) -> None:
    said = at_once(deleted, study.database.address, processes=2)
    assert (min(said), "unknown study 'small'" in max(said)) == ("deleted", True)
    assert healthy(study.database)


def test_a_claim_at_the_same_moment_is_held_or_the_study_is_gone(study: OpenStudy) -> None:
    turns = multiprocessing.get_context("fork").Value("i", 0)
    said = at_once(either, study.database.address, turns, processes=4)
    done, claims = said.count("deleted"), said.count("claimed")
    assert (done, claims > 0) in ((1, False), (0, True)), said
    rest = [each for each in said if each not in ("deleted", "claimed")]
    assert all("unknown study" in e or "no more" in e or "bob is at work" in e for e in rest), rest
    assert healthy(study.database)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_work_that_is_being_claimed_is_waited_for(study: OpenStudy) -> None:
    study.verifications.add([run_of(study, {"seeds": 1})])
    mine = schema.work.c.kind == schema.RUN
    taken = {"state": "running", "worker": "ann", "token": "t", "leased_until": 4e9}
    by = update(schema.work).where(mine).values(taken)
    said = while_locked(study.database, by, lambda: deleted(study.database.address))
    assert "ann is at work on it" in said
    assert study.is_there()


@SQLITE_ALONE
def test_who_has_signed_in_keeps_a_study(study: OpenStudy) -> None:
    at = {"host": "h", "pid": 1, "device": "d", "device_uuid": "u"}
    study.roster.join("ann", **at)  # type: ignore[arg-type]
    for each in OPERATIONS.values():
        with pytest.raises(UsageError, match="ann is at work on it; end that first"):
            each(study.database) if each is OPERATIONS["rename"] else delete_studies(
                study.database, ["small"]
            )
    study.roster.leave("ann")
    delete_studies(study.database, ["small"])
    study.roster.join("bob", **at)  # type: ignore[arg-type]
    assert dump(study.database)["tuner_workers"] == []


class Answering(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def test_who_begins_anew_hears_what_the_study_is_called_now(database: Database) -> None:
    launch(database, trials=4)
    rename_study(database, "small", "first try")
    assert launch(database, "first try")[0].notes == ()
    (made,) = launch(database)
    (said,) = made.notes
    assert said == (
        "small begins anew: the study that was called so is 'first try' now, and 'tuner launch' "
        "goes on with it by --study 'first try'"
    )
    assert launch(database)[0].notes == ()


def test_a_person_lists_shows_renames_and_deletes(
    recorded_database: RecordedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded_database.copied_into(tmp_path)
    url = f"sqlite:///{tmp_path}/storage/tuner.db"
    optuna.create_study(study_name="theirs", storage=url)
    listed = json.loads(run_here("study", "list", "--json", folder=tmp_path).out)["studies"]
    told = [(each["study"], each.get("finished"), each["state"]) for each in listed]
    assert told == [
        ("demo-rmsnorm", 12, "searched, nothing confirmed"),
        ("demo-original", 12, "searched, nothing confirmed"),
        ("theirs", None, "of another program, 0 of 0 complete"),
    ]
    assert listed[0]["bytes"] > 20_000
    assert run_here("study", "rename", "demo-rmsnorm", "first", folder=tmp_path).code == 0
    shown = run_here("study", "show", "first", folder=tmp_path).out
    assert "rmsnorm on demo" in shown
    assert "trials      12 of 12 finished, 0 running" in shown
    held = (tmp_path / "storage" / "tuner.db").read_bytes()
    refused = run_here("study", "delete", "first", folder=tmp_path)
    assert (refused.code, "all trials and runs, for good? there is" in refused.error) == (
        2,
        True,
    )
    for answer, code in (("n", 2), ("y", 0)):
        assert (tmp_path / "storage" / "tuner.db").read_bytes() == held
        monkeypatch.setattr("sys.stdin", Answering(f"{answer}\n"))
        assert run_here("study", "delete", "first", folder=tmp_path).code == code
    names = [
        line.split()[0] for line in run_here("study", "list", folder=tmp_path).out.split("\n")[2:-1]
    ]
    assert names == ["demo-original", "theirs"]
    assert run_here("db", "check", folder=tmp_path).out.endswith("everything agrees\n")
