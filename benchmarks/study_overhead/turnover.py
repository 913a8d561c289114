"""What a worker does between two trainings, in studies of different lengths, with trainings that take no time.

    python benchmarks/study_overhead/turnover.py --study benchmarks/study_overhead/1000-trials-h200.study.json.gz --output OUT/turnover

A study is made of the first trials of an exported one, and a worker goes on with it: it claims, asks the sampler, tells
epochs, is judged by the pruner and stores results as ever, on SQLite, but a training returns at once with what a trial
of the exported study came to. Its curve falls evenly to the validation loss that was recorded, for as many epochs.
Medians of seconds a trial; `turnover` is all but suggesting and the training (storing, claiming, preparing). No GPU.
Two versions of the code are compared by turns, with `PYTHONPATH` on the one and the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.config import StopReason
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, read_archive
from tuner.study.results import TrialRecord
from tuner.study.transfer import restore
from tuner.training.run_state import EpochRecord
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker

FIRST_LOSS = 0.4
"""Of every curve; the reference job's are about that high after an epoch."""


def curve_of(record: TrialRecord) -> list[EpochRecord]:
    """As many epochs as the trial had, down to its validation loss."""
    count = max(1, int(record.recorded.epochs or 1))
    lowest, seconds = float(record.recorded.val_loss), float(record.recorded.wall_clock_s)
    losses = [
        max(lowest, FIRST_LOSS + (lowest - FIRST_LOSS) * n / count) for n in range(1, count + 1)
    ]
    return [
        EpochRecord(
            epoch=n,
            train_loss=loss,
            val_loss=loss,
            learning_rate=1e-3,
            elapsed_s=seconds * n / count,
        )
        for n, loss in enumerate(losses, start=1)
    ]


def rows(record: TrialRecord) -> tuple[EpochRow, ...]:
    return tuple(EpochRow(**dataclasses.asdict(epoch)) for epoch in curve_of(record))


def beginning(archive: Archive, trials: int) -> Archive:
    """The study as it was after so many trials, its times not bound to the device they were taken on."""
    records = tuple(record for record in archive.records if record.number < trials)
    curves = {
        record.number: rows(record) for record in records if record.recorded.val_loss is not None
    }
    return dataclasses.replace(
        archive, records=records, curves=curves, budget=trials, device_model=None, verifications=()
    )


def replay(complete: Iterator[TrialRecord], job: TrialJob) -> TrialResult:
    """A trial that comes to what the next of these came to, unless the pruner ends it."""
    record = next(complete)
    said = dataclasses.replace(record.recorded, cycle_s=None, turnover_s=None, suggest_s=None)
    for epoch in curve_of(record):
        if job.epoch_ended(epoch, 0) is StopReason.PRUNED:
            ended = dataclasses.replace(
                said, stopped_by=StopReason.PRUNED.value, epochs=epoch.epoch
            )
            return TrialResult(TrialState.PRUNED, None, ended)
    return TrialResult(TrialState.COMPLETE, record.values, said)


def measure(archive: Archive, length: int, trials: int) -> dict[str, Any]:
    """Medians of what the trials after the first `length` say of themselves."""
    complete = [
        record
        for record in archive.records
        if record.state is TrialState.COMPLETE and record.values
    ]
    again = itertools.cycle(complete)
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(parse_url(f"sqlite:///{folder}/study.db"))
        opened = restore(database, beginning(archive, length), "turnover")
        opened.ledger.set_budget(length + trials)
        Worker([opened], CpuCores(available_cores()[:1]), lambda job: replay(again, job)).run()
        found = [
            t.user_attrs for t in opened.optuna.get_trials(deepcopy=False) if t.number > length
        ]
        database.close()
    return {
        "length": length,
        "trials": len(found),
        **{
            name: statistics.median(a[f"{name}_s"] for a in found)
            for name in ("turnover", "suggest")
        },
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--study", type=Path, required=True, help="an exported study")
    parser.add_argument("--lengths", default="60,300,1000")
    parser.add_argument(
        "--trials", type=int, default=40, help="at each length; the first does not count"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    archive = read_archive(options.study)
    found = [measure(archive, int(length), options.trials) for length in options.lengths.split(",")]
    where = circumstances(CpuCores(available_cores()[:1]).model)
    lines = [*heading(where), "| trials before | turnover, s | suggesting, s |", "|---|---|---|"]
    lines += [
        f"| {each['length']} | {each['turnover']:.4f} | {each['suggest']:.4f} |" for each in found
    ]
    write(options.output, where | {"found": found}, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
