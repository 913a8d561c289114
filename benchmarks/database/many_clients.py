"""Up to 512 workers on one PostgreSQL: results a second, what a claim takes, and whether all is there.

    python benchmarks/database/many_clients.py --clients 8 64 256 512 --output OUT/many-clients
    python benchmarks/database/many_clients.py --clients 512 --trial-s 20 --restarts 2 --output OUT/many-clients-20s

It starts a PostgreSQL of its own and stops it at the end. Nothing is trained: each client is the
product's worker (benchmarks/database/pretending.py), eight processes hold them all, and they share
the cores with the server. Without `--trial-s` a trial ends at once, so that all clients always want
something: the most that there is. With it, each lasts so many seconds, with an epoch a second.
`--reads` has each suggestion read what is new in the study, as samplers do. With `--restarts` the
server is stopped and started so often meanwhile, in turns fast and at once. Writes OUTPUT.md and
OUTPUT.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

sys.path.append(str(Path(__file__).parents[2]))

import numpy as np
import optuna
import psutil
import sqlalchemy as sa

from benchmarks.database.overhead import definition, where, write
from benchmarks.database.pretending import Heard, Load, clients
from tests.support.postgres_cluster import Cluster, running_cluster
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.check import check_database
from tuner.storage.database import open_database
from tuner.storage.queue.claims import ATTEMPTED
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.worker.paths import WorkerPaths, deliver

PROCESSES = 8
CONNECTIONS = 1200
HEADER = (
    "| clients | results a second | a claim, ms: median | 95 % | 99 % | server's ms of a core, a "
    "result | connections | restarts | claims lost or returned | all there, once, budget exact "
    "| load before |"
)
DOWN_S = 3.0
SETTINGS = {
    "fsync": "on",
    "max_connections": str(CONNECTIONS),
    "shared_buffers": "256MB",
}


def prepared(cluster: Cluster, settings: dict[str, str]) -> None:
    """Restart the server with these settings."""
    with cluster.connect() as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
    cluster.stop()
    cluster.start()


class Server:
    """What the server used, and how many connections there were."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self._cluster, self._database = cluster, database
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most_connections = 0
        self._cpu: dict[int, float] = {}
        self._samples: list[tuple[float, float]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def cpu_s(self, since: float, until: float) -> float:
        """Seconds of a core between two moments."""
        at, used = zip(*self._samples, strict=True)
        first, last = np.interp([since, until], at, used)
        return float(last - first)

    def _used(self) -> float:
        """Seconds of all its processes so far, those that ended among them, of all its starts."""
        assert self._cluster._server is not None  # noqa: SLF001 - there is no other way to its number
        main = psutil.Process(self._cluster._server.pid)  # noqa: SLF001
        try:
            own = main.cpu_times()
            total = own.user + own.system + own.children_user + own.children_system
            for child in main.children():
                try:
                    times = child.cpu_times()
                    total += times.user + times.system
                except psutil.NoSuchProcess:
                    continue
        except psutil.NoSuchProcess:
            return sum(self._cpu.values())
        self._cpu[main.pid] = total
        return sum(self._cpu.values())

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            try:
                self._samples.append((time.time(), self._used()))
                with self._cluster.connect() as connection:
                    query = "SELECT numbackends, sessions FROM pg_stat_database WHERE datname = %s"
                    row = connection.execute(query, (self._database,)).fetchone()
                    if row:
                        self.most_connections = max(self.most_connections, row[0])
                        self.sessions = row[1]
            except Exception:  # noqa: BLE001 - it is down just now
                continue


def restarted(cluster: Cluster, opened: OpenStudy, budget: int, times: int) -> list[float]:
    """Restart the server when a third of the budget is filled, two thirds, …; when that was."""
    at = []
    for turn in range(times):
        while _finished(opened) < budget * (turn + 1) / (times + 1):
            time.sleep(0.2)
        at.append(time.time())
        cluster.stop(signal.SIGQUIT if turn % 2 else signal.SIGINT)
        time.sleep(DOWN_S)
        cluster.start()
    return at


def _finished(opened: OpenStudy) -> int:
    try:
        return opened.ledger.counts().finished
    except sa.exc.DBAPIError:
        return 0


def measured(cluster: Cluster, count: int, given: argparse.Namespace) -> dict[str, Any]:
    """One number of clients on an empty database."""
    name = cluster.create_database()
    address = parse_url(cluster.url(name))
    budget = given.trials or max(400, 4 * count)
    database = open_database(address)
    opened = create_or_resume(database, "many", definition(), trials=budget)
    opened.set_policy(SearchPolicy(sampler="random", prune=False))
    load = Load(url=address.full(), study="many", trial_s=given.trial_s, reads=given.reads)
    context = multiprocessing.get_context("fork")
    processes = min(given.processes, count)
    ready, answers = context.Barrier(processes + 1), context.Queue()
    shares = [len(part) for part in np.array_split(np.arange(count), processes)]
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for i, share in enumerate(shares):
            arguments = (load, share, Path(folder) / str(i), ready, answers)
            started.append(context.Process(target=clients, args=arguments, daemon=True))
        for process in started:
            process.start()
        ready.wait(900)
        began, busy = time.time(), os.getloadavg()[0]
        with Server(cluster, name) as server:
            downs = restarted(cluster, opened, budget, given.restarts)
            heard = [answers.get(timeout=3600) for _ in started]
        for process in started:
            process.join()
        for each in Path(folder).rglob("outbox"):  # as the next worker or the launch does
            deliver([opened], WorkerPaths(each.parent))
        left_over = len(list(Path(folder).rglob("*.json")))
    found = _figures(count, budget, began, heard)
    found |= {
        "connections": server.most_connections,
        "server_cpu_ms": 1e3 * server.cpu_s(*found.pop("middle")) / found.pop("in_middle"),
        "restarts": len(downs),
        "load_before": busy,
        "audit": audited(opened, heard, budget, left_over),
    }
    database.close()
    cluster.empty_database(name)
    return found


def _figures(count: int, budget: int, began: float, heard: list[Heard]) -> dict[str, Any]:
    """Of the middle of the results: not of the beginning and of the end, where some clients wait."""
    ended = sorted(at for each in heard for at, _, _ in each.ended)
    low, high = int(0.1 * len(ended)), int(0.9 * len(ended)) - 1
    claims = np.array([took for each in heard for took in each.claim_s])
    return {
        "clients": count,
        "trials": budget,
        "took_s": ended[-1] - began,
        "results_a_second": (high - low) / (ended[high] - ended[low]),
        "middle": (ended[low], ended[high]),
        "in_middle": high - low,
        "claim_ms": {str(p): 1e3 * float(np.percentile(claims, p)) for p in (50, 95, 99)},
        "failures": [line for each in heard for line in each.failures],
    }


def audited(opened: OpenStudy, heard: list[Heard], budget: int, left_over: int) -> dict[str, Any]:
    """Whether the database has exactly what the clients stored."""
    told = [(number, seconds) for each in heard for _, number, seconds in each.ended]
    fresh = open_study(opened.database, opened.name)
    c = schema.work.c
    with opened.database.engine.connect() as connection:
        query = sa.select(c.trial_number).where(ATTEMPTED, c.state == "finished")
        claimed = [number for (number,) in connection.execute(query)]
        by_state = sa.select(c.state, sa.func.count()).where(ATTEMPTED).group_by(c.state)
        counted = connection.execute(by_state)
        ends = {str(state): int(number) for state, number in counted}
        epochs = connection.execute(
            sa.select(sa.func.count(sa.distinct(schema.epochs.c.trial_number)))
        ).scalar_one()
    trials = fresh.optuna.get_trials(deepcopy=False)
    stored = {trial.number: trial.values[0] for trial in trials if trial.values}
    check = check_database(opened.database.address)
    return {
        "budget": budget,
        "finished": len(claimed),
        "twice": len(claimed) - len(set(claimed)) + len(told) - len({number for number, _ in told}),
        "lost": sum(abs(stored.get(number, 0.0) - seconds) > 1e-9 for number, seconds in told),
        "told_by_clients": len(told),
        "with_epochs": epochs,
        "claims": ends,
        "left_in_outboxes": left_over,
        "findings": [finding.what for finding in check.findings],
    }


def sound(audit: dict[str, Any]) -> bool:
    """Nothing lost, nothing twice, the budget exact, and everything agrees."""
    return (
        audit["finished"] == audit["budget"] == audit["with_epochs"]
        and audit["twice"] == audit["lost"] == audit["left_in_outboxes"] == 0
        and not audit["findings"]
    )


def lines(document: dict[str, Any]) -> list[str]:
    doing = f"{document['trial_s']:g} s a trial" if document["trial_s"] else "trials end at once"
    reads = "each suggestion reads what is new" if document["reads"] else "no suggestion reads"
    head = f"{document['date']}, {document['server']}, {document['machine']}; {doing}, {reads}."
    text = [
        f"{head} `{document['command']}`",
        "",
        HEADER,
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for f in document["figures"]:
        claim, ends = f["claim_ms"], f["audit"]["claims"]
        back = sum(number for state, number in ends.items() if state != "finished")
        there = "yes" if sound(f["audit"]) and not f["failures"] else "NO"
        text.append(
            f"| {f['clients']} | {f['results_a_second']:.1f} | {claim['50']:.0f} | {claim['95']:.0f} "
            f"| {claim['99']:.0f} | {f['server_cpu_ms']:.1f} | {f['connections']} | {f['restarts']} "
            f"| {back} | {there}: {f['audit']['finished']} of {f['audit']['budget']} "
            f"| {f['load_before']:.1f} |"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 64, 256, 512])
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--trials", type=int, default=0, help="0: four a client, at least 400")
    parser.add_argument("--trial-s", type=float, default=0.0)
    parser.add_argument("--reads", action="store_true")
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with running_cluster() as cluster:
        prepared(cluster, SETTINGS)
        document: dict[str, Any] = where(parse_url(cluster.url("postgres"))) | {
            "command": " ".join(["python", *sys.argv]),
            "settings": SETTINGS,
            "trial_s": given.trial_s,
            "reads": given.reads,
            "figures": [],
        }
        for count in given.clients:
            document["figures"].append(measured(cluster, count, given))
            write(given.output, document, "\n".join(lines(document)) + "\n")
            print(lines(document)[-1], flush=True)


if __name__ == "__main__":
    main()
