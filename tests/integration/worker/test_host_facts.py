"""Hosts that differ, and hosts whose clock or time zone is another one."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.databases import SQLITE_ALONE
from tests.support.in_process_worker import DEVICE, result_of
from tests.support.paths import REPOSITORY
from tests.support.postgres_cluster import Cluster
from tuner.report.study_status import status_of
from tuner.storage.database import Database
from tuner.storage.dialects import clock_skew_s
from tuner.storage.queue.claims import stints
from tuner.storage.queue.roster import HostFacts, all_in_words, clock_in_words, newcomer_in_words
from tuner.study.open import OpenStudy
from tuner.worker.loop import Worker, host_facts

HERE = HostFacts(torch_version="2.11.0", tuner_version="1.0", clock_skew_s=0.01)


def joined(study: OpenStudy, worker: str, host: str, **changes: object) -> None:
    facts = dataclasses.replace(HERE, **changes)  # type: ignore[arg-type]
    study.roster.join(worker, host=host, pid=1, device="CPU core 0", device_uuid="u", facts=facts)


@SQLITE_ALONE
def test_versions_that_have_not_worked_here_are_said_before_the_first_claim(
    study: OpenStudy, caplog: pytest.LogCaptureFixture
) -> None:
    joined(study, "ann", "one", torch_version="1.0.0", tuner_version="0.0.1")
    mine = host_facts(study.database.engine)
    with caplog.at_level(logging.WARNING):
        Worker([study], DEVICE, result_of, name="ben").run()
    said = [line for line in caplog.messages if "has been worked at with" in line]
    assert len(said) == 2
    assert f"with torch 1.0.0, this host has {mine.torch_version}" in said[0]
    assert f"with tuner 0.0.1, this host has {mine.tuner_version}" in said[1]
    caplog.clear()
    study.ledger.set_budget(11)
    Worker([study], DEVICE, result_of, name="cid").run()
    assert not [line for line in caplog.messages if "has been worked at with" in line]


@SQLITE_ALONE
def test_the_status_says_what_tells_hosts_apart(study: OpenStudy) -> None:
    joined(study, "ann", "one")
    joined(study, "ann2", "one")
    assert status_of(study)["hosts_differ"] == []
    assert len(status_of(study)["hosts"]) == 1
    joined(study, "ben", "two", torch_version="2.13.0", clock_skew_s=-3600.4)
    status = status_of(study)
    assert status["hosts_differ"] == [
        "worked at with torch 2.11.0, 2.13.0",
        "the clock of two is 3600 s behind the database's; only the database's counts",
    ]
    assert {each["torch_version"] for each in status["hosts"]} == {"2.11.0", "2.13.0"}


@SQLITE_ALONE
def test_what_is_not_known_of_a_host_is_no_difference(study: OpenStudy) -> None:
    study.roster.join("ann", host="old", pid=1, device="CPU core 0", device_uuid="u")
    others = [facts for _, facts in study.roster.hosts()]
    assert others == [HostFacts()]
    assert newcomer_in_words("small", HERE, others) == []
    assert clock_in_words(HostFacts(), "old") is None
    assert all_in_words(study.roster.hosts()) == []


def test_a_clock_that_is_right_is_found_right(database: Database) -> None:
    assert abs(clock_skew_s(database.engine)) < 1.0


@pytest.mark.parametrize("shift_s", [3600, -3600])
def test_a_clock_an_hour_off_is_found_by_the_databases(
    shift_s: int, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = type("Wrong", (), {"time": staticmethod(lambda: time.time() + shift_s)})
    monkeypatch.setattr("tuner.storage.dialects.time", wrong)
    facts = host_facts(database.engine)
    assert facts.clock_skew_s == pytest.approx(shift_s, abs=1.0)
    which = "ahead of" if shift_s > 0 else "behind"
    assert f"3600 s {which} the database's" in str(clock_in_words(facts, "this host"))


def test_a_worker_with_a_clock_an_hour_off_in_another_time_zone_works_as_any(
    postgres: Cluster, tmp_path: Path
) -> None:
    """A real one: its whole process has the other clock. Only the roster, and one line, tell."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing = "shifting a process's clock needs a C compiler (apt-get install gcc)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    library, source = tmp_path / "shifted.so", REPOSITORY / "benchmarks/chaos/shifted_clock.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    name = postgres.create_database()
    bench = Bench(tmp_path, postgres.url(name))
    assert bench.launch(1).code == 0
    bench.allow(2)
    shifted = {"LD_PRELOAD": str(library), "CLOCK_SHIFT_S": "3600", "TZ": "Pacific/Kiritimati"}
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *f"worker --study {STUDY} --cpu --cores 0".split()],
        cwd=tmp_path,
        env=bench.environment | shifted,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the clock of this host is 3600 s ahead of the database's") == 1
    with bench.opened() as study:
        first, second = stints(study.database.engine, study.study_id)
        assert first.state == second.state == "finished"
        assert 0 < second.began - first.began < 600
        assert study.ledger.counts().finished == 2
    status = json.loads(bench.run("status", "--json").out)["studies"][0]
    assert any("3600 s ahead" in line for line in status["hosts_differ"])
    postgres.empty_database(name)
