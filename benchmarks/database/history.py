"""A study with a long history: what each thing takes that people and workers do with it.

    python benchmarks/database/history.py --storage URL_OF_AN_EMPTY_DATABASE --trials 20000 --output OUT/history-sqlite

Fills a study with finished trials as a worker would leave them (parameters, two objectives, 31 user attributes, claim,
ten epochs), by bulk insert; then times each step, in a fresh process every round, in the order in which a worker or a
person comes to it: elapsed seconds, and seconds of this side's processor (what others use meanwhile adds to the former
only; so does the database server's own work). Writes OUTPUT.json (every round) and OUTPUT.md (the table, medians).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import RDBStorage
from optuna.trial import TrialState

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.database.long_history import NAME, RESULT, fill
from benchmarks.database.overhead import where, write
from tuner.report.dashboard.server import make_dashboard
from tuner.report.study_status import status_of
from tuner.storage.check import check_database
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.results import read_results


class Stopwatch:
    """Seconds by what they were spent on: elapsed, and of the processor."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    def time(self, what: str, action: Callable[[], Any]) -> Any:
        began, used = time.perf_counter(), _processor_s()
        result = action()
        self.seconds[what] = (time.perf_counter() - began, _processor_s() - used)
        return result


def _processor_s() -> float:
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + of_children.ru_utime + of_children.ru_stime


def as_worker(url: str, watch: Stopwatch) -> None:
    database = watch.time("open the database", lambda: open_database(parse_url(url), create=False))
    opened = watch.time("open the study", lambda: open_study(database, NAME))
    follow_policy(opened)
    watch.time("look for lost trials", opened.ledger.reap)
    watch.time("count toward the budget", opened.ledger.counts)
    if any(trial.state == TrialState.WAITING for trial in opened.optuna.get_trials(deepcopy=False)):
        raise SystemExit("nothing may wait here: fill a fresh database")
    opened = open_study(database, NAME)  # with nothing read yet
    follow_policy(opened)
    for which in ("first", "second", "third"):
        claim = watch.time("claim", lambda: opened.ledger.claim("bench"))
        watch.time(f"{which} ask", lambda claim=claim: opened.ask(claim))
        watch.time("result", lambda claim=claim: opened.ledger.finish(claim, RESULT))
    watch.seconds["memory of a worker (MB)"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        0.0,
    )
    database.close()


def follow_policy(opened: Any) -> None:
    """What the study's policy says, as a worker reads it."""
    from tuner.search import sampler

    policy = opened.policy()
    if hasattr(sampler, "sampler_for"):
        opened.optuna.sampler = sampler.sampler_for(opened.name, opened.definition, policy)
    else:
        inner = sampler.make_sampler(policy.sampler, policy.seed)
        opened.optuna.sampler = sampler.EncodedSampler(opened.definition.space, inner)


def as_person(url: str, watch: Stopwatch) -> None:
    database = open_database(parse_url(url), create=False)
    opened = open_study(database, NAME)
    watch.time("read all results", lambda: read_results(opened))
    theirs = RDBStorage(parse_url(url).full())
    watch.time(
        "the trials as Optuna reads them",
        lambda: theirs.get_all_trials(opened.study_id, deepcopy=False),
    )
    watch.time("status", lambda: status_of(opened))
    watch.time("status again", lambda: status_of(opened))
    watch.time("check the database", lambda: check_database(parse_url(url)))
    database.close()


def as_dashboard(url: str, watch: Stopwatch) -> None:
    server = watch.time(
        "dashboard starts", lambda: make_dashboard(parse_url(url), host="127.0.0.1", port=0)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def get(path: str) -> bytes:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.server_port}{path}", timeout=900
        ) as answer:
            found: bytes = answer.read()
        return found

    watch.time("dashboard lists studies", lambda: get("/api/studies"))
    study = json.loads(get("/api/studies"))["study_summaries"][0]["study_id"]
    watch.time("dashboard opens the study", lambda: get(f"/api/studies/{study}"))
    watch.time("dashboard again", lambda: get(f"/api/studies/{study}?after=20000"))


def as_command(url: str, watch: Stopwatch) -> None:
    command = [sys.executable, "-m", "tuner", "status", "--json"]
    environment = os.environ | {"TUNER_STORAGE": url}
    watch.time(
        "tuner status",
        lambda: subprocess.run(command, env=environment, check=True, capture_output=True),
    )


def _in_child(action: Callable[[str, Stopwatch], None], url: str, answers: Any) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    watch = Stopwatch()
    action(url, watch)
    answers.put(watch.seconds)


def fresh(action: Callable[[str, Stopwatch], None], url: str) -> dict[str, tuple[float, float]]:
    """`action` in a process of its own: no cache of an earlier one helps it."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(action, url, answers))
    child.start()
    found: dict[str, tuple[float, float]] = answers.get(timeout=3600)
    child.join()
    return found


def table(document: dict[str, Any]) -> str:
    head = f"{document['date']}, {document['server']}, {document['machine']}; {document['trials']} finished trials, "
    lines = [
        head + f"{len(document['rounds'])} rounds (medians), seconds.",
        "",
        "| what | elapsed | processor |",
        "|---|---|---|",
    ]
    for what in document["rounds"][0]:
        elapsed, used = (
            statistics.median(found[what][i] for found in document["rounds"]) for i in (0, 1)
        )
        memory = "(MB)" in what
        lines.append(
            f"| {what} | {elapsed:.0f} | |"
            if memory
            else f"| {what} | {elapsed:.2f} | {used:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--filled", action="store_true", help="the study is there already")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    address = parse_url(given.storage)
    began = time.perf_counter()
    if not given.filled:
        context = multiprocessing.get_context("fork")
        filler = context.Process(target=fill, args=(address, given.trials))
        filler.start()
        filler.join()
    print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
    rounds = []
    for _ in range(given.rounds):
        found: dict[str, tuple[float, float]] = {}
        for action in (as_worker, as_person, as_dashboard, as_command):
            found |= fresh(action, given.storage)
        print(json.dumps(found), flush=True)
        rounds.append(found)
    document = where(address) | {
        "trials": given.trials,
        "rounds": rounds,
    }
    write(given.output, document, table(document))
    print(table(document))


if __name__ == "__main__":
    main()
