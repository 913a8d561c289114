"""Moving the tables to a newer version while workers of the old one are there: real workers, real
upgrades, to a version that comes after whichever is the newest."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, select, text, update

from tests.support.claims import RESULT, claim_states, while_locked
from tests.support.cli_processes import Bench, finished
from tests.support.forked_cli import Done
from tests.support.small_study import definition
from tuner.errors import StorageError
from tuner.storage import migrations, schema
from tuner.storage.check import check_database
from tuner.storage.database import Database, reachable
from tuner.storage.upgrade import upgrade
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume

NEXT = schema.SCHEMA_VERSION + 1
SCRIPT = f"""
import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{schema.SCHEMA_VERSION}"


def upgrade() -> None:
    op.add_column("tuner_claims", sa.Column("of_the_next", sa.Text()))
"""
NEWER = f"have version {NEXT}, this tuner works with {NEXT - 1}: they are newer; upgrade tuner"


@contextmanager
def the_next_tuner(folder: Path) -> Iterator[None]:
    """In this process tuner is of the next version meanwhile; those it starts are of this one."""
    there = Path(migrations.__file__).parent / "versions"
    versions = folder / "versions"
    versions.mkdir(exist_ok=True)
    (versions / "next.py").write_text(SCRIPT, encoding="utf-8")
    scripts = ScriptDirectory(there.parent, version_locations=[there, versions])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "SCHEMA_VERSION", NEXT)
        patch.setattr(migrations, "_scripts", lambda: scripts)
        yield


@pytest.fixture
def bench(tmp_path: Path, database_url: str) -> Bench:
    """With a study of nine trials, of which one is done, and whose trials last from now on."""
    bench = Bench(tmp_path, database_url)
    bench.slowed().unlink()
    done = bench.launch(1)
    assert done.code == 0, done.err
    with bench.opened() as study:
        study.ledger.set_budget(9)
    bench.slowed()
    return bench


@contextmanager
def at_work(bench: Bench) -> Iterator[subprocess.Popen[str]]:
    """A worker of this version with a trial that trains."""
    command = "worker --study tiny-small --cpu --trust --task tiny.toml"
    process = bench.start(*command.split(), cores=1)
    try:
        bench.wait_until_training(process)
        yield process
    finally:
        process.kill()
        process.communicate()


def moved(bench: Bench, folder: Path) -> int:
    """The version that the tables had before the next tuner upgraded them."""
    with the_next_tuner(folder):
        return upgrade(parse_url(bench.url))


def states(bench: Bench) -> list[str]:
    """Of all claims; the tables may be of another version."""
    with engine_of(bench) as engine, engine.connect() as connection:
        query = select(schema.claims.c.state).order_by(schema.claims.c.claim_id)
        return list(connection.execute(query).scalars())


@contextmanager
def engine_of(bench: Bench) -> Iterator[Engine]:
    with reachable(parse_url(bench.url)) as engine:
        yield engine


def refused(done: Done) -> None:
    """In one line, with exit code 1."""
    assert done.code == 1
    assert NEWER in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_an_upgrade_names_who_is_at_work_and_who_slept_through_it_claims_no_more(
    bench: Bench, tmp_path: Path
) -> None:
    with at_work(bench) as worker:
        with bench.opened() as study:
            (row,) = study.roster.working()
        with pytest.raises(StorageError, match=rf"1 worker is at work \({row.worker}\): stop"):
            moved(bench, tmp_path)
        process = psutil.Process(worker.pid)
        process.suspend()
        with engine_of(bench) as engine, engine.begin() as connection:
            # As if it had been silent since long before the server's start.
            seen_at = schema.workers.c.seen_at - 3600.0
            connection.execute(update(schema.workers).values(seen_at=seen_at))
            connection.execute(update(schema.claims).values(leased_until=0.0))
        assert moved(bench, tmp_path) == NEXT - 1
        (bench.folder / "slow").unlink()
        process.resume()
        refused(finished(worker))
    assert states(bench) == ["finished", "finished"], "what it had trained counts, once"
    refused(bench.run("worker", "--study", "tiny-small", "--cpu", "--trust"))
    assert states(bench) == ["finished", "finished"]
    with the_next_tuner(tmp_path):
        assert check_database(parse_url(bench.url)).findings == ()
        with bench.opened() as study:
            assert study.ledger.claim("of the next") is not None


def test_neither_queue_gives_work_to_an_older_or_a_newer_tuner(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (NEXT, NEXT - 2):
        with monkeypatch.context() as patch:
            patch.setattr(schema, "SCHEMA_VERSION", version)
            for queue in (study.ledger, study.verifications):
                with pytest.raises(StorageError, match=f"this tuner works with {version}"):
                    queue.claim("ann")
    assert claim_states(study) == []
    claim = study.ledger.claim("ann", token="t")
    assert claim is not None
    assert study.ledger.claim("ann", token="t") == claim
    assert study.ledger.finish(claim, RESULT)


def test_a_claim_under_way_is_waited_for_and_the_next_is_refused(
    database: Database, tmp_path: Path
) -> None:
    """Who looked at the version before the upgrade claims before it; nobody in between."""
    study = create_or_resume(database, "small", definition(), trials=3)
    lock = select(schema.studies.c.study_id).with_for_update()
    with the_next_tuner(tmp_path):
        move = functools.partial(upgrade, database.address)
        assert while_locked(database, lock, move) == NEXT - 1
    assert "of_the_next" in {
        c["name"] for c in inspect(database.engine).get_columns("tuner_claims")
    }
    with pytest.raises(StorageError, match=NEWER):
        study.ledger.claim("ann")


def test_workers_of_before_a_restart_are_waited_for(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server is down nobody is seen: they are there, and about to come back."""
    if database.address.is_sqlite:
        pytest.skip("there is no server")
    study = create_or_resume(database, "small", definition(), trials=3)
    study.roster.join("ann", host="h", pid=1, device="cpu", device_uuid="c")
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE tuner_workers SET seen_at = seen_at - 300"))
    with the_next_tuner(tmp_path):
        monkeypatch.setattr("tuner.storage.upgrade.BACK_WITHIN_S", 1e9)
        # Seen after the server's start, as far as this one can tell; the limit decides.
        monkeypatch.setattr("tuner.storage.upgrade.RETRY_S", 1e9)
        with pytest.raises(StorageError, match=r"\(ann\).* after the database started"):
            upgrade(database.address)
        monkeypatch.setattr("tuner.storage.upgrade.BACK_WITHIN_S", 0.0)
        assert upgrade(database.address) == NEXT - 1
