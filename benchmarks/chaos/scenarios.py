"""What is done to workers and databases, each with what it found."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit import audit, audit_beside_others, audit_verification
from faults import Monkey, Record, Restarts, each_second
from hosts import cannot_make_namespaces, two_hosts
from stand import STUDY, Stand, on_postgres, on_server, on_sqlite, workers_of

from tuner.verdict.verification_plan import plan_verification

LEASE_S = 6.0
LIMIT_S = 1800.0
FOREIGN_FAULT_S = 5.0
Outcome = dict[str, Any]


class FailedError(Exception):
    """A launch ended otherwise than by filling its budget."""


def postgres(options: argparse.Namespace, record: Record) -> Outcome:
    """8 workers on PostgreSQL; the server is restarted three times."""
    with on_postgres(options.trials, LEASE_S) as stand:
        restarts = Restarts(stand, record)
        found = _harassed(
            stand, record, workers=8, options=options, meanwhile=each_second(restarts.look)
        )
        if not restarts.done:
            found["broken"].append("the server was restarted three times")
        return found


def sqlite(options: argparse.Namespace, record: Record) -> Outcome:
    """4 workers on SQLite."""
    with on_sqlite(options.trials, LEASE_S) as stand:
        return _harassed(stand, record, workers=4, options=options)


def mariadb(options: argparse.Namespace, record: Record) -> Outcome:
    """8 workers on MariaDB."""
    if options.mariadb is None:
        return {"skipped": "no --mariadb URL was given"}
    with on_server(options.mariadb, options.trials, LEASE_S) as stand:
        return _harassed(stand, record, workers=8, options=options)


def trainers(options: argparse.Namespace, record: Record) -> Outcome:
    """4 workers on PostgreSQL whose trainings run in processes of their own; faults strike workers and trainers."""
    with on_postgres(options.trials, LEASE_S) as stand:
        return _harassed(stand, record, workers=4, options=options, beside=True)


def supervisor(options: argparse.Namespace, record: Record) -> Outcome:
    """Kill -9 of the supervisor of 4 workers on PostgreSQL, then of the next one's while the server is down."""
    with on_postgres(min(options.trials, 60), LEASE_S) as stand:
        assert stand.cluster is not None
        first = stand.launch(4)
        _wait_for_results(stand, stand.trials // 4, record)
        gone = {"server up": _kill_supervisor(first, record)}
        second = stand.launch(4)
        _wait_for_results(stand, stand.trials // 2, record)
        stand.cluster.stop()
        record.note("database stopped")
        time.sleep(1.0)
        gone["server down"] = _kill_supervisor(second, record)
        stand.cluster.start()
        record.note("database started")
        third = stand.launch(4)
        third.wait(LIMIT_S)
        figures, broken = audit(stand)
        figures["last_worker_gone_after_s"] = gone
        if max(gone.values()) > 5.0:
            broken.append("no worker is left after 5 s")
        if third.returncode != 0:
            broken.append("the next launch fills the budget")
        return {"figures": figures, "broken": broken}


def _kill_supervisor(launch: subprocess.Popen[bytes], record: Record) -> float:
    """Seconds until its last worker is gone, at most 60."""
    workers = len(workers_of(launch))
    launch.kill()
    record.note("kill -9 of the supervisor", workers=workers)
    killed = time.monotonic()
    while workers_of(launch) and time.monotonic() - killed < 60:
        time.sleep(0.05)
    return round(time.monotonic() - killed, 2)


def clocks(options: argparse.Namespace, record: Record) -> Outcome:
    """Two launches on PostgreSQL, clocks an hour fast and an hour slow, three time zones; one worker of each frozen."""
    compiler = shutil.which("cc")
    if compiler is None:
        return {"skipped": "shifting a process's clock needs a C compiler"}
    with on_postgres(min(options.trials, 60), LEASE_S) as stand:
        library = stand.folder / "shifted_clock.so"
        source = Path(__file__).with_name("shifted_clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        fast = stand.launch(
            3, LD_PRELOAD=str(library), CLOCK_SHIFT_S="3600", TZ="Pacific/Kiritimati"
        )
        slow = stand.launch(
            3, LD_PRELOAD=str(library), CLOCK_SHIFT_S="-3600", TZ="America/St_Johns"
        )
        _wait_for_results(stand, stand.trials // 5, record)
        victims = [workers_of(launch)[0] for launch in (fast, slow)]
        for victim in victims:
            victim.suspend()
        record.note("freeze", pids=[victim.pid for victim in victims])
        time.sleep(2 * LEASE_S)
        for victim in victims:
            victim.resume()
        codes = [launch.wait(LIMIT_S) for launch in (fast, slow)]
        figures, broken = audit(stand)
        figures["wall_clocks"] = _clocks_in(stand)
        lost = figures["claims_by_state"].get("lost", 0)
        if codes != [0, 0]:
            broken.append("both launches fill the budget")
        if lost > len(victims):
            broken.append(
                f"no live worker is taken for dead (lost: {lost}, frozen: {len(victims)})"
            )
        return {"figures": figures, "broken": broken}


def hosts(options: argparse.Namespace, record: Record) -> Outcome:
    """Two hosts (network namespaces) with 3 workers each and one PostgreSQL; the link of one is cut for 60 s."""
    if (reason := cannot_make_namespaces()) is not None:
        return {"skipped": reason}
    with on_postgres(min(options.trials, 400), LEASE_S) as stand:
        figures = two_hosts(stand, record, cut_s=60.0, limit_s=LIMIT_S, wait=_wait_for_results)
        found, broken = audit(stand)
        broken += figures.pop("broken")
        return {"figures": found | figures, "broken": broken}


def foreign(options: argparse.Namespace, record: Record) -> Outcome:
    """4 workers on SQLite beside another program, which asks, tells, enqueues, adds, changes and deletes."""
    with on_sqlite(100_000, LEASE_S) as stand:
        launch = stand.launch(4)
        done = stand.folder / "done.json"
        other = subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("foreign.py"),
                "--study",
                STUDY,
                "--done",
                done,
            ],
            env=os.environ | {"OPTUNA_STORAGE_OF_OURS": stand.url},
            start_new_session=True,
        )
        try:
            record.note("another program begins", pid=other.pid)
            for fault in range(int(options.minutes * 60 / FOREIGN_FAULT_S)):
                time.sleep(FOREIGN_FAULT_S)
                if fault % 2 and (workers := workers_of(launch)):
                    workers[0].kill()  # so that trials come back while others are at them
                    record.note("kill -9", pid=workers[0].pid)
            with stand.opened() as study:
                stand.trials = study.ledger.counts().finished + 20
                study.ledger.set_budget(stand.trials)
                record.note("the budget is set", trials=stand.trials)
            code = launch.wait(LIMIT_S)
        finally:
            other.kill()
            other.wait()
        figures, broken = audit_beside_others(stand)
        figures = {
            "minutes": options.minutes,
            "what_it_did": json.loads(done.read_text()),
        } | figures
        figures |= {"launch_exit_code": code, "wall_clock_s": record.now()}
        return {
            "figures": figures,
            "broken": broken + ([] if code == 0 else ["the launch fills the budget"]),
        }


def verify_sqlite(options: argparse.Namespace, record: Record) -> Outcome:
    """Verification with 4 workers on SQLite, which are killed, frozen and told to end."""
    with on_sqlite(12, LEASE_S) as stand:
        return _verified(stand, record, options)


def verify_postgres(options: argparse.Namespace, record: Record) -> Outcome:
    """Verification with 4 workers on PostgreSQL, which are killed, frozen and told to end."""
    with on_postgres(12, LEASE_S) as stand:
        return _verified(stand, record, options)


def _verified(stand: Stand, record: Record, options: argparse.Namespace) -> Outcome:
    if stand.launch(4).wait(LIMIT_S) != 0:
        raise FailedError("there is no study to verify")
    with stand.opened() as study:
        planned = plan_verification([study], top=4, seeds=max(1, options.trials // 5))
        record.note("planned", runs=planned.new_runs)
    launch = stand.launch(4, verify=True)
    monkey = Monkey(stand, launch, record, seed=options.seed, every_s=options.every)
    code = monkey.harass(lambda: None, limit_s=LIMIT_S)
    figures, broken = audit_verification(stand)
    figures |= {
        "workers": 4,
        "a_fault_every_s": options.every,
        "faults": {fault: record.count(fault) for fault in ("kill -9", "freeze", "SIGTERM")},
        "launch_exit_code": code,
        "wall_clock_s": record.now(),
    }
    return {
        "figures": figures,
        "broken": broken + ([] if code == 0 else ["the launch makes all runs"]),
    }


SCENARIOS: dict[str, Callable[[argparse.Namespace, Record], Outcome]] = {
    each.__name__: each
    for each in (
        postgres,
        sqlite,
        trainers,
        supervisor,
        hosts,
        clocks,
        mariadb,
        foreign,
        verify_sqlite,
        verify_postgres,
    )
}


def _harassed(
    stand: Stand,
    record: Record,
    *,
    workers: int,
    options: argparse.Namespace,
    meanwhile: Callable[[], None] = lambda: None,
    beside: bool = False,
) -> Outcome:
    launch = stand.launch(workers, beside=beside)
    monkey = Monkey(
        stand, launch, record, seed=options.seed, every_s=options.every, trainers=beside
    )
    code = monkey.harass(meanwhile, limit_s=LIMIT_S)
    if code is None:
        record.note("the time limit was reached")
    figures, broken = audit(stand)
    living = [number for at_s, number in record.living if at_s > 10.0]
    figures |= {
        "workers": workers,
        "a_fault_every_s": options.every,
        "launch_exit_code": code,
        "wall_clock_s": record.now(),
        "faults": {fault: record.count(fault) for fault in ("kill -9", "freeze", "SIGTERM")},
        "restarts": record.count("database started"),
        "workers_living": {"median": sorted(living)[len(living) // 2], "least": min(living)}
        if living
        else None,
    }
    if code != 0:
        broken.append("the launch fills the budget")
    return {"figures": figures, "broken": broken}


def _clocks_in(stand: Stand) -> list[str]:
    """The first time in each launch's log: that the clocks were shifted indeed."""
    logs = sorted(stand.folder.glob("launch-*.log"))
    return [path.read_text(errors="replace")[:19] for path in logs]


def _wait_for_results(stand: Stand, number: int, record: Record) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with stand.opened() as study:
            finished = study.ledger.counts().finished
        if finished >= number:
            record.note("results so far", finished=finished)
            return
        time.sleep(0.5)
    raise FailedError(f"{number} results did not arrive within {LIMIT_S:.0f} s")
