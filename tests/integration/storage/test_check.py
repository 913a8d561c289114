"""`tuner db init` and `check`: what a look at the database finds, in each state that it can be
in."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import delete, text, update

from tests.support.databases import SQLITE_ALONE
from tuner.cli.main import main
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.queue.verifications import PlannedRun, Verifications
from tuner.storage.records import Claim, TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy

RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.25), Recorded(epochs=7))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)


def start(study: OpenStudy) -> Claim:
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ask(claim) is not None
    return claim


def findings(database: Database) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in check_database(database.address).findings]


def test_a_database_at_work_is_healthy(study: OpenStudy) -> None:
    assert study.ledger.finish(start(study), RESULT)
    start(study)
    assert study.ledger.claim("bob") is not None  # has not asked for its parameters yet
    report = check_database(study.database.address)
    assert (report.findings, report.healthy) == ((), True)
    assert report.version == report.expected_version == schema.SCHEMA_VERSION
    assert report.optuna_version == report.expected_optuna_version
    assert report.server.startswith(("PostgreSQL 1", "SQLite 3", "MariaDB 1"))
    counted = {
        "studies": 1,
        "work": 3,
        "trials_of_work_finished": 1,
        "trials_of_work_running": 2,
        "trials_complete": 1,
    }
    assert counted.items() <= report.counts.items()
    assert set(report.counts) >= {
        name.removeprefix("tuner_") for name in schema.metadata.tables
    } - {"schema"}


@SQLITE_ALONE
def test_a_result_that_optuna_was_not_told_is_found(study: OpenStudy) -> None:
    claim = start(study)
    assert study.ledger._update_running(claim, state="finished", result=RESULT.to_json())
    ((level, what),) = findings(study.database)
    assert (level, what) == (
        "error",
        (
            "results that Optuna was not told yet: 1 (small trial 0); "
            "the next worker or launch tells it"
        ),
    )
    study.ledger.settle()
    assert findings(study.database) == []


@SQLITE_ALONE
def test_a_trial_that_runs_for_nobody_is_found(study: OpenStudy) -> None:
    study.optuna.ask(study.definition.space.stored())
    ((level, what),) = findings(study.database)
    assert level == "error"
    assert "trials that run for nobody: 1 (small trial 0)" in what
    assert study.ledger.return_strays() == 1
    assert findings(study.database) == []


def test_what_does_not_agree_is_found(study: OpenStudy) -> None:
    first, second = start(study), start(study)
    assert study.ledger.finish(first, RESULT)
    assert study.ledger.finish(second, RESULT)
    c = schema.work.c
    with study.database.engine.begin() as connection:
        connection.execute(
            update(schema.work).where(c.work_id == second.work_id).values(trial_number=0)
        )
        connection.execute(
            update(schema.work).where(c.work_id == second.work_id).values(trial_id=12345)
        )
    assert sorted(findings(study.database)) == [
        (
            "error",
            (
                "trials that other programs changed in Optuna's tables: 1 (small trial 0: its row "
                "is gone); tuner goes by its own record, and 'tuner db check --repair' restores it "
                "there"
            ),
        ),
        ("error", "trials with two results: 1 (small trial 0)"),
        (
            "notice",
            ("trials that other programs made or ended: 1 (small trial 1); tuner ignores them"),
        ),
    ]


@SQLITE_ALONE
def test_a_lease_that_ran_out_and_a_deleted_study_are_notices(study: OpenStudy) -> None:
    start(study)
    with study.database.engine.begin() as connection:
        connection.execute(update(schema.work).values(leased_until=0.0))
    ((level, what),) = findings(study.database)
    assert level == "notice"
    assert "leases that ran out: 1 (small trial 0)" in what
    assert check_database(study.database.address).healthy
    with study.database.engine.begin() as connection:
        connection.execute(delete(schema.work))
    study.database.optuna.delete_study(study.study_id)
    assert [level for level, _ in findings(study.database)] == ["notice"]


def verification_at_work(study: OpenStudy) -> Verifications:
    """A finished trial whose configuration is being run again on two seeds, of three planned."""
    assert study.ledger.finish(start(study), RESULT)
    queue = Verifications(study.database.engine, [study.study_id])
    runs = [
        PlannedRun(
            study_id=study.study_id,
            trial_number=0,
            seed=n,
            place=n,
            params={"dropout": 0.1},
            session="s",
            plan={},
            block=0,
        )
        for n in range(3)
    ]
    assert queue.add(runs) == 3
    assert [queue.claim(worker) is not None for worker in ("ann", "bob")] == [True, True]
    return queue


@SQLITE_ALONE
def test_verification_runs_that_do_not_agree_are_found(study: OpenStudy) -> None:
    verification_at_work(study)
    assert findings(study.database) == []
    v = schema.work
    with study.database.engine.begin() as connection:
        connection.execute(update(v).where(v.c.worker == "ann").values(leased_until=0.0))
    ((level, what),) = findings(study.database)
    assert level == "notice"
    assert "leases that ran out: 1 (small trial 0 seed 0)" in what
    with study.database.engine.begin() as connection:
        connection.execute(update(v).values(leased_until=database_now() + 600.0))
        connection.execute(update(v).where(v.c.seed == 0).values(worker=""))
        connection.execute(update(v).where(v.c.seed == 1).values(state="finished"))
        connection.execute(update(v).where(v.c.seed == 2).values(trial_number=5))
    assert sorted(findings(study.database)) == [
        ("error", "finished verification runs without a result: 1 (small trial 0 seed 1)"),
        ("error", "verification runs of trials that are not there: 1 (small trial 5 seed 2)"),
        ("error", "verification runs that run for nobody: 1 (small trial 0 seed 0)"),
    ]


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    assert run("init", "--storage", url) == 0
    path = tmp_path / "tuner.db"
    with sqlite3.connect(path) as file:
        page = file.execute("PRAGMA page_size").fetchone()[0]
        root = file.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_tuner_work_1'"
        )
        where = (root.fetchone()[0] - 1) * page
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    with path.open("r+b") as raw:
        raw.seek(where)
        raw.write(b"\xff" * page)
    ((level, what),) = [(each.level, each.what) for each in check_database(parse_url(url)).findings]
    assert level == "error"
    assert "damaged" in what


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["db", *arguments])
    return int(ended.value.code or 0)


def test_init_and_check_on_the_command_line(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--storage", database_url)
    if database_url.startswith("postgresql"):
        assert run("check", "--json", *options) == 1
        empty = json.loads(capsys.readouterr().out)
        assert (empty["healthy"], empty["version"], empty["counts"]) == (False, None, {})
        assert "tuner db init" in empty["findings"][0]["what"]
    assert run("init", *options) == 0
    assert f"is ready: version {schema.SCHEMA_VERSION}" in capsys.readouterr().out
    assert run("init", *options) == 0
    assert "was ready already" in capsys.readouterr().out
    assert run("check", *options) == 0
    assert capsys.readouterr().out.endswith("everything agrees\n")
    assert run("check", "--json", *options) == 0
    assert json.loads(capsys.readouterr().out)["healthy"] is True


def test_a_database_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", "--storage", f"sqlite:///{tmp_path}/none.db") == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "there is no database" in said.err
    assert list(tmp_path.iterdir()) == []


@SQLITE_ALONE
def test_a_table_that_is_gone_is_named(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("DROP TABLE tuner_epochs"))
    ((level, what),) = findings(database)
    assert (level, what) == ("error", "the table tuner_epochs is gone; go back to a backup")
