"""A worker whose database is away, and whose disk is full: nothing that was computed is lost."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from tests.support.in_process_worker import (
    DEVICE,
    away,
    epoch,
    result_of,
    study_in,
    three_epochs,
    work,
)
from tests.support.small_disk import fill
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker import work_source as running_module
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths


def test_training_goes_on_in_an_outage_and_its_epochs_come_later(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "BUFFERED_AT_MOST", 4)
    monkeypatch.setattr("tuner.worker.work_source.REPORT_S", 0.0)
    spilled = []

    def run(job: TrialJob) -> TrialResult:
        with monkeypatch.context() as outage:
            outage.setattr(type(opened.epochs), "write", away)
            for number in range(1, 11):
                job.on_epoch(epoch(number), 0)
            spilled.append(len(list((tmp_path / "outbox").iterdir())))
        job.on_epoch(epoch(11), 0)
        return result_of(job)

    work(opened, run, tmp_path)
    assert spilled == [2, 2]
    assert [row.epoch for row in opened.epochs.of_trial(0)] == list(range(1, 12))
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_result_outlives_its_worker_and_the_next_one_delivers_it(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(job: TrialJob) -> TrialResult:
        patch.setattr(type(opened.ledger), "finish", killed)
        return three_epochs(job)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        work(opened, run, tmp_path)
    assert opened.ledger.counts().finished == 0
    ran: list[int] = []

    def note(job: TrialJob) -> TrialResult:
        ran.append(job.number)
        return result_of(job)

    work(opened, note, tmp_path)
    assert ran == [1], "trial 0 was done"
    assert opened.ledger.counts().finished == 2
    assert list((tmp_path / "outbox").iterdir()) == []


def test_who_hands_back_in_its_stead_delivers_what_it_could_not(
    opened: OpenStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    worker = Worker([opened], DEVICE, three_epochs, paths=WorkerPaths(tmp_path), name="ann")
    with monkeypatch.context() as patch:
        patch.setattr(type(opened.ledger), "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            worker.run()
    worker.hand_back()
    assert (opened.ledger.counts().finished, opened.ledger.counts().running) == (1, 0)
    assert [row.epoch for row in opened.epochs.of_trial(0)] == [1, 2, 3]


class Heard(logging.Handler):
    """What was logged, to be looked at from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def test_a_full_disk_pauses_the_worker_which_names_it_and_goes_on_when_there_is_space(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.worker.paths.LOOK_AGAIN_S", 0.2)
    database = open_database(parse_url(f"sqlite:///{small_disk}/tuner.db"))
    study = study_in(database, trials=1)
    filler = small_disk / "filler"

    def run(job: TrialJob) -> TrialResult:
        fill(filler)
        return result_of(job)

    def make_space() -> None:
        while "disk full" not in heard and not over.wait(0.05):
            pass
        filler.unlink()

    heard, over = Heard(), threading.Event()
    logger = logging.getLogger("tuner.worker")
    logger.addHandler(heard)
    monkeypatch.setattr(logger, "level", logging.INFO)
    janitor = threading.Thread(target=make_space)
    janitor.start()
    try:
        work(study, run, small_disk)
    finally:
        over.set()
        janitor.join()
        logger.removeHandler(heard)
    assert f"({small_disk}/tuner.db); waiting for space to store a result" in heard
    assert "there is space again" in heard
    assert study.ledger.counts().finished == 1
    database.close()
