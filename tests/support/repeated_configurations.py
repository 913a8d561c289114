"""A recorded study in which one configuration ran four times, once with luck: real records, real
databases, no training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.recorded_studies import record_study
from tuner.spec.membership import seed_of_trial
from tuner.spec.pareto import Point
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import TrialRecord
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.verdict.same_quality import Answer, answer_of

NAME = "demo-rmsnorm"
TRIALS = 16
REPEATED = 5
"""The number of the configuration's first trial."""
NUMBERS = (REPEATED, TRIALS, TRIALS + 1, TRIALS + 2)
LUCKY = TRIALS + 1
"""The trial that dominates all others by its luck."""
VALUES: tuple[Point, ...] = ((60.0, 1.2), (40.0, 1.1), (0.01, 0.01), (80.0, 1.3))
"""Of the four runs; the medians are 50 s and 1.15."""
MEDIANS = (50.0, 1.15)


@pytest.fixture(scope="session")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The study, as it would be exported: trials 16 to 18 repeat trial 5. Recorded once."""
    url = f"sqlite:///{tmp_path_factory.mktemp('repeated')}/once.db"
    name = record_study(url, variant="rmsnorm", trials=TRIALS)
    database = open_database(parse_url(url), create=False)
    try:
        archive = archive_of(open_study(database, name))
    finally:
        database.close()
    return with_runs(archive, VALUES)


def twice_and_faster(archive: Archive) -> Archive:
    """The same, in which that configuration ran twice, far better and faster than all others."""
    return with_runs(archive, ((0.1, 0.5), (0.12, 0.51)))


def answer(study: OpenStudy) -> Answer:
    """What it recommends, which is something."""
    found = answer_of(snapshot(study))
    assert isinstance(found, Answer), found
    return found


def opened(archive: Archive, folder: Path) -> OpenStudy:
    """A study of it, in a database of its own."""
    return restore(open_database(parse_url(f"sqlite:///{folder}/tuner.db")), archive, "few")


def with_runs(archive: Archive, values: Sequence[Point]) -> Archive:
    """The first of `values` for the trial `REPEATED`, the others for trials that repeat it."""
    first = archive.records[REPEATED]
    numbers = (REPEATED, *range(TRIALS, TRIALS + len(values) - 1))
    runs = [
        run_of(archive, first, number, each) for number, each in zip(numbers, values, strict=True)
    ]
    others = [record for record in archive.records if record.number not in (*NUMBERS, *numbers)]
    records = sorted([*others, *runs], key=lambda record: record.number)
    return dataclasses.replace(archive, records=tuple(records), budget=len(records))


def run_of(archive: Archive, first: TrialRecord, number: int, values: Point) -> TrialRecord:
    """A trial of that number that repeats `first` with a seed of its own."""
    seconds, mql = values
    recorded = dataclasses.replace(
        first.recorded,
        seed=seed_of_trial(number, root=archive.membership.seed_root),
        wall_clock_s=seconds,
        test_mql=mql,
        default=None,
    )
    return dataclasses.replace(
        first,
        number=number,
        values=values,
        recorded=recorded,
        ended=f"2099-01-01T00:00:{number:02}",
    )


def on_front(archive: Archive) -> Archive:
    """The same, whose repeated configuration stands on the front."""
    return with_runs(archive, tuple((seconds / 400, mql) for seconds, mql in VALUES))
