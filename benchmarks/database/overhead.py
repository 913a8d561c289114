"""What keeping a trial costs: our claim, lease and result beside plain Optuna's ask and tell, on one PostgreSQL.

    python benchmarks/database/overhead.py --storage postgresql://USER@HOST/EMPTY_DATABASE --output OUT/overhead

Nothing is trained. Both contenders use the same random sampler, space, objectives and user attributes (those of a real
trial); each with N worker processes at once on a study of its own, in turns, for some rounds:

- optuna: `study.ask`, `trial.set_user_attr` for each attribute, `study.tell`, on Optuna's own engine settings.
- optuna without attributes: ask and tell alone, the least that Optuna can do.
- ours: look for lost trials, read budget and policy, claim, choose and write parameters, renew the lease, write the
  result and tell Optuna. As a worker does.
- worker: ours, and what a worker writes for people to watch: twelve epochs and two reports of where it is.

Per trial: milliseconds from begin to end as a worker sees them (mean over all trials of a round), SQL statements and
transactions (counted, not timed). Writes OUTPUT.json (every round) and OUTPUT.md (the table).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import TrialState
from sqlalchemy import Engine, event

from tuner.config import TrainingSettings
from tuner.data.task import load_task
from tuner.devices.cpu import available_cores, processor_name
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage.check import check_database
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult
from tuner.storage.url import DatabaseUrl, parse_url
from tuner.study.open import create_or_resume, open_study

CONTENDERS = ("optuna", "optuna without attributes", "ours", "worker")
EPOCHS = 12
ATTRIBUTES: dict[str, Any] = {
    "stopped_by": "converged",
    "converged": True,
    "epochs": 47,
    "best_epoch": 36,
    "val_loss": 0.2263,
    "s_per_epoch": 0.0756,
    "setup_s": 1.25,
    "time_to_best_s": 2.71,
    "samples_per_s": 448_000.0,
    "peak_memory_bytes": 211_000_000,
    "n_parameters": 133_000,
    "backend": "graph",
    "precision": "fp32",
    "seed": 3_141_592_653,
    "contaminated": False,
    "contamination": None,
    "device_watch": {"clock_mhz": [1980, 1980], "others": [], "throttled": False},
    "versions": {
        "python": "3.12",
        "cuda": "12.8",
        "tuner": "0.1.0",
        "torch": "2.11",
        "optuna": "5.0",
        "numpy": "2.2",
    },
    "git_revision": "0" * 40,
    "device": "NVIDIA H200",
    "device_label": "GPU 0",
    "device_uuid": "GPU-00000000-0000-0000-0000-000000000000",
    "host": "host",
    "val_mql": 0.41,
    "test_mql_mean": 0.83,
    "test_mql/ETTh1": 0.80,
    "test_mql/ETTh2": 0.86,
    "val_mql/ETTh1": 0.41,
    "val_mql/ETTh2": 0.43,
    "total_s": 5.5,
    "suggest_s": 0.01,
}
VALUES = (3.4, 0.804)


def definition() -> StudyDefinition:
    training = TrainingSettings(max_epochs=200)
    return StudyDefinition.of(
        load_study_file("original"),
        task=load_task("etth").definition(),
        data_hash="0" * 64,
        training=training,
    )


def where(address: DatabaseUrl) -> dict[str, str]:
    """The day, the server and the machine of a measurement."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "server": check_database(address).server,
        "machine": f"{processor_name()}, {len(available_cores())} cores, Python {platform.python_version()}",
    }


def write(output: Path, document: dict[str, Any], text: str) -> None:
    """OUTPUT.json and OUTPUT.md. (What other benchmarks share imports torch, whose memory would be measured here.)"""
    output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(text, encoding="utf-8")


class Counter:
    """Statements and transactions that an engine has run."""

    def __init__(self, engine: Engine) -> None:
        self.statements = 0
        self.transactions = 0
        event.listen(engine, "before_cursor_execute", self._statement)
        event.listen(engine, "commit", self._commit)
        event.listen(engine, "rollback", self._commit)

    def _statement(self, *_: object) -> None:
        self.statements += 1

    def _commit(self, *_: object) -> None:
        self.transactions += 1


def create(contender: str, address: DatabaseUrl, name: str, trials: int) -> None:
    if contender.startswith("optuna"):
        optuna.create_study(
            study_name=name, storage=address.full(), directions=["minimize", "minimize"]
        )
        return
    database = open_database(address)
    create_or_resume(database, name, definition(), trials=trials)
    database.close()


def work(contender: str, url: str, name: str, trials: int, barrier: Any, answers: Any) -> None:
    """One worker: its trials, and what each took (ms)."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run = (_plain if contender.startswith("optuna") else _ours)(contender, parse_url(url), name)
    counter: Counter = run.send(None)
    run.send(None)  # connects, and fills the caches, before the clock starts
    counter.statements = counter.transactions = 0
    barrier.wait(120)
    took = []
    for _ in range(trials):
        began = time.perf_counter()
        run.send(None)
        took.append((time.perf_counter() - began) * 1e3)
    answers.put((took, counter.statements / trials, counter.transactions / trials))


def _plain(contender: str, address: DatabaseUrl, name: str) -> Any:
    attributes = ATTRIBUTES if contender == "optuna" else {}
    study = optuna.load_study(study_name=name, storage=address.full(), sampler=RandomSampler())
    space = definition().space.stored()
    yield Counter(study._storage._backend.engine)  # noqa: SLF001
    while True:
        trial = study.ask(space)
        for key, value in attributes.items():
            trial.set_user_attr(key, value)
        study.tell(trial, VALUES)
        yield


def _ours(contender: str, address: DatabaseUrl, name: str) -> Any:
    opened = open_study(open_database(address, create=False), name)
    opened.optuna.sampler = RandomSampler()
    worker = multiprocessing.current_process().name
    watched = contender == "worker"
    epochs = [EpochRow(epoch, 0.3, 0.3, 1e-4, float(epoch)) for epoch in range(EPOCHS)]
    opened.roster.join(worker, host="host", pid=1, device="GPU 0", device_uuid="GPU-0")
    yield Counter(opened.database.engine)
    while True:
        opened.ledger.reap()
        assert opened.ledger.counts().left
        claim = opened.ledger.claim(worker)
        assert claim is not None
        opened.policy()
        trial = opened.ask(claim)
        assert trial is not None
        if watched:
            opened.roster.report(worker, trial_number=trial.number, epoch=0, val_loss=None)
        opened.ledger.renew(claim)
        if watched:
            opened.epochs.write(trial.number, claim.work_id, epochs)
        assert opened.ledger.finish(
            claim, TrialResult(TrialState.COMPLETE, VALUES, Recorded.from_flat(ATTRIBUTES))
        )
        if watched:
            opened.roster.report(worker, trial_number=None, epoch=None, val_loss=None)
        yield


def measure(
    contender: str, address: DatabaseUrl, *, workers: int, trials: int, round_number: int
) -> dict[str, Any]:
    name = f"{contender.replace(' ', '-')}-{workers}-{round_number}-{time.time_ns()}"
    create(contender, address, name, (trials + 1) * workers + 1)
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(workers), context.Queue()
    given = (contender, address.full(), name, trials, barrier, answers)
    processes = [context.Process(target=work, args=given, daemon=True) for _ in range(workers)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    times = [one for took, _, _ in found for one in took]
    return {
        "contender": contender,
        "workers": workers,
        "round": round_number,
        "ms_per_trial": statistics.fmean(times),
        "ms_median": statistics.median(times),
        "statements": statistics.fmean(statements for _, statements, _ in found),
        "transactions": statistics.fmean(transactions for _, _, transactions in found),
    }


def table(document: dict[str, Any]) -> str:
    rounds = document["rounds"]
    head = (
        f"{document['date']}, {document['server']}, {document['machine']}; {document['trials']} trials a worker and round, "
        f"{len({r['round'] for r in rounds})} rounds in turns, {document['attributes']} user attributes a trial. "
        "Median over the rounds of the mean of all trials; the ratio is the median of the rounds' ratios."
    )
    lines = [
        head,
        "",
        "| workers | who | ms a trial | over plain Optuna | SQL statements | transactions |",
        "|---|---|---|---|---|---|",
    ]
    for workers in sorted({r["workers"] for r in rounds}):
        plain = {
            r["round"]: r["ms_per_trial"]
            for r in rounds
            if (r["contender"], r["workers"]) == ("optuna", workers)
        }
        for contender in CONTENDERS:
            of_this = [r for r in rounds if (r["contender"], r["workers"]) == (contender, workers)]
            ms = statistics.median(r["ms_per_trial"] for r in of_this)
            ratio = statistics.median(r["ms_per_trial"] / plain[r["round"]] for r in of_this)
            statements = statistics.median(r["statements"] for r in of_this)
            transactions = statistics.median(r["transactions"] for r in of_this)
            lines.append(
                f"| {workers} | {contender} | {ms:.1f} | {ratio:.2f} | {statements:.1f} | {transactions:.1f} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", required=True)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--trials", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    address = parse_url(given.storage)
    open_database(address).close()
    rounds = []
    for round_number in range(given.rounds):
        for workers in given.workers:
            # Turns change from round to round: who comes first finds the smaller tables.
            turn = CONTENDERS[round_number % 4 :] + CONTENDERS[: round_number % 4]
            for contender in turn:
                rounds.append(
                    measure(
                        contender,
                        address,
                        workers=workers,
                        trials=given.trials,
                        round_number=round_number,
                    )
                )
                print(json.dumps(rounds[-1]), flush=True)
    document = where(address) | {
        "trials": given.trials,
        "attributes": len(ATTRIBUTES),
        "rounds": rounds,
    }
    write(given.output, document, table(document))
    print(table(document))


if __name__ == "__main__":
    main()
