"""A backup that is taken while workers are at work, and a study that goes on from it: by the
command, and by the tools of the database."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from tests.support.claims import at_first_sight
from tests.support.cli_processes import PATIENCE_S, Bench, wait_for
from tests.support.databases import SQLITE_ALONE
from tests.support.in_process_worker import DEVICE, RESULT, epoch, study_in
from tests.support.postgres_cluster import PASSWORD, USER, Cluster
from tuner.errors import StorageError
from tuner.storage import database as backup
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import Database, back_up, open_database
from tuner.storage.records import Claim, TrialResult
from tuner.storage.url import DatabaseUrl, parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker
from tuner.worker.paths import Outbox, WorkerPaths

__all__ = ["at_first_sight"]
BUDGET = 12


@pytest.fixture(autouse=True)
def tools(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of the server that the tests start."""
    monkeypatch.setenv("PATH", f"{postgres.binaries}{os.pathsep}{os.environ['PATH']}")


def slow(job: TrialJob) -> TrialResult:
    for number in (1, 2):
        time.sleep(0.05)
        job.on_epoch(epoch(number), 0)
    return result(job.number)


def slow_once(over: threading.Event) -> Callable[[TrialJob], TrialResult]:
    """The last trials end once that is over, however long it takes."""

    def run(job: TrialJob) -> TrialResult:
        if job.number >= BUDGET - 6:
            over.wait(PATIENCE_S)
        return slow(job)

    return run


def result(number: int) -> TrialResult:
    return replace(RESULT, recorded=replace(RESULT.recorded, seed=number))


def at_work(
    url: str, folder: Path, name: str, train: Callable[[TrialJob], TrialResult] = slow
) -> threading.Thread:
    """A worker with connections of its own, until the budget is filled."""

    def work() -> None:
        database = open_database(parse_url(url))
        opened = open_study(database, "small")
        Worker([opened], DEVICE, train, paths=WorkerPaths(folder), name=name).run()
        database.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def results(database: Database) -> dict[int, int]:
    """How many finished claims each trial has."""
    c = schema.work.c
    query = select(c.trial_number, func.count()).where(c.state == "finished")
    with database.engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(query.group_by(c.trial_number))}


def restored(file: Path, tmp_path: Path, request: pytest.FixtureRequest) -> DatabaseUrl:
    """A fresh database with what the backup holds, as docs/several-machines.md says."""
    if file.suffix == ".db":
        return parse_url(f"sqlite:///{shutil.copy(file, tmp_path / 'restored.db')}")
    cluster: Cluster = request.getfixturevalue("postgres")
    name = cluster.create_database()
    where = f"--host=127.0.0.1 --port={cluster.port} --username={USER} --dbname={name}"
    subprocess.run(
        ["pg_restore", "--no-password", "--exit-on-error", *where.split(), str(file)],
        env=os.environ | {"PGPASSWORD": PASSWORD},
        check=True,
    )
    request.addfinalizer(lambda: cluster.empty_database(name))
    return parse_url(cluster.url(name))


def of_the_dead(study: OpenStudy, folder: Path) -> tuple[Claim, Claim]:
    """Two workers die before the backup: one leaves its result in its outbox, one nothing."""
    with_result, without = (study.ledger.claim(name) for name in ("bob", "cid"))
    assert with_result is not None
    assert without is not None
    for claim in (with_result, without):
        assert study.ask(claim) is not None
    outbox = Outbox(WorkerPaths(folder).outbox, study.key())
    outbox.put_result(with_result, result(with_result.trial_number))
    return with_result, without


def test_a_study_goes_on_from_a_backup_that_was_taken_while_workers_were_at_work(
    database: Database,
    database_url: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    at_first_sight: None,
) -> None:
    study = study_in(database, trials=BUDGET)
    elsewhere = tmp_path / "another host"
    with_result, without = of_the_dead(study, elsewhere)
    over = threading.Event()
    train = slow_once(over)
    workers = [at_work(database_url, tmp_path / name, name, train) for name in ("ann", "dan")]
    file = tmp_path / ("copy.db" if database.address.is_sqlite else "copy.dump")
    try:
        wait_for(lambda: study.ledger.counts().finished >= 4, "some results")
        back_up(parse_url(database_url), file)
        assert study.ledger.counts().finished < BUDGET - 4, "workers were at work meanwhile"
    finally:
        over.set()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    again = open_database(restored(file, tmp_path, request))
    there = open_study(again, "small")
    before = there.ledger.counts()
    assert 4 <= before.finished < BUDGET
    assert before.running >= 2, "also those of the dead"
    with again.engine.begin() as connection:
        connection.execute(update(schema.work).values(leased_until=0.0))  # a night has passed
    at_work(again.address.full(), elsewhere, "eve").join()  # on the host of the outbox
    assert results(again) == dict.fromkeys(range(BUDGET), 1)
    (attempt,) = there.ledger.attempts(with_result.trial_number)
    assert (attempt.worker, attempt.state) == ("bob", "finished"), "from the outbox, once"
    ended = [each.state for each in there.ledger.attempts(without.trial_number)]
    assert ended == ["lost", "finished"]
    assert list(WorkerPaths(elsewhere).outbox.glob("*.json")) == []
    assert check_database(again.address).findings == ()
    again.close()
    for claim in (with_result, without):
        assert study.ledger.finish(claim, result(claim.trial_number))
    for thread in workers:
        thread.join()
    assert results(database) == dict.fromkeys(range(BUDGET), 1), "the first one noticed nothing"


def test_what_a_worker_of_after_the_backup_holds_is_nobodys_in_the_restored_database(
    database: Database, database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A server that went back to its backup, under workers that never stopped."""
    study = study_in(database, trials=5)
    file = tmp_path / ("copy.db" if database.address.is_sqlite else "copy.dump")
    back_up(parse_url(database_url), file)
    old = study.ledger.claim("ann")
    assert old is not None
    again = open_database(restored(file, tmp_path, request))
    there = open_study(again, "small")
    new = there.ledger.claim("bob")
    assert new is not None
    assert (new.work_id, new.trial_number) == (old.work_id, old.trial_number)
    assert not there.ledger.renew(old)
    assert not there.ledger.finish(old, result(0))
    assert there.ledger.renew(new)
    assert there.ledger.counts().finished == 0
    again.close()


@SQLITE_ALONE
def test_the_command_says_what_it_wrote_and_writes_over_nothing(
    database_url: str, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, database_url)
    assert bench.run("db", "backup", "copy").code == 1, "there is nothing to back up"
    study_in(open_database(parse_url(database_url)))
    done = bench.run("db", "backup", "copy")
    assert done.code == 0, done.err
    assert "copy holds" in done.out + done.err
    first = (tmp_path / "copy").read_bytes()
    again = bench.run("db", "backup", "copy")
    assert (again.code, "--force" in again.error) == (2, True)
    assert (tmp_path / "copy").read_bytes() == first
    assert bench.run("db", "backup", "copy", "--force").code == 0
    assert bench.run("db", "backup", ".").code == 2
    os.mkfifo(tmp_path / "pipe")
    pipe = bench.run("db", "backup", "pipe", "--force")
    assert (pipe.code, "pipe: is a pipe or a device" in pipe.error) == (2, True)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to("copy")
    assert bench.run("db", "backup", "link", "--force").code == 0
    assert (tmp_path / "link").is_symlink()
    assert bench.run("db", "backup", "no-folder/copy").code == 1
    if database_url.startswith("sqlite"):
        itself = bench.run("db", "backup", database_url.removeprefix("sqlite:///"), "--force")
        assert "the database itself" in itself.error
        with sqlite3.connect(tmp_path / "copy") as copy:
            assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".copy")] == []


def test_without_pg_dump_the_command_to_run_is_said_without_the_password(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = postgres.create_database()
    open_database(parse_url(postgres.url(name))).close()
    monkeypatch.setattr(backup, "PG_DUMP", "pg_dump_that_is_not_there")
    with pytest.raises(StorageError, match=r"run: .*--dbname=.*test_") as raised:
        back_up(parse_url(postgres.url(name)), tmp_path / "copy")
    assert PASSWORD not in str(raised.value)
    monkeypatch.setattr(backup, "PG_DUMP", "false")
    with pytest.raises(StorageError, match="could not copy"):
        back_up(parse_url(postgres.url(name)), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    postgres.empty_database(name)
