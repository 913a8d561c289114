"""The longest epoch of a trial, by which a hang is told from work."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from typing import Any, cast

import pytest

from tests.support.in_process_worker import epoch
from tests.support.trial_jobs import job_of
from tuner.devices import Gpu
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.worker.process import TRAINER, TRAINING, Beat, Heartbeat
from tuner.worker.trainer import StopByte, _train
from tuner.worker.work_source import RunningTrial

EARLIER = [epoch(1, 50.0), epoch(2, 100.0)]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def longest(heard: int) -> list[float]:
    """Of each sign that a training gave, in order."""
    beats = [Beat.from_line(line) for line in os.read(heard, 1 << 16).splitlines()]
    return [beat.longest_epoch_s for beat in beats if beat.phase == TRAINING]


def test_a_worker_that_goes_on_counts_the_epoch_and_not_the_clock(pipe: tuple[int, int]) -> None:
    running = RunningTrial(cast("OpenStudy", None), "ann", 3, heartbeat=Heartbeat(pipe[1]))
    running._report_interval.wrote(well=True)  # nothing is due to be told
    running.on_curve(EARLIER, 0)
    running.on_epoch(epoch(3, 101.5), 0)
    running.on_epoch(epoch(4, 102.0), 0)
    running.on_curve([], 0)  # the next run begins with its first epoch
    running.on_epoch(epoch(1, 2.0), 0)
    assert longest(pipe[0]) == [1.5, 1.5, 2.0]


def test_a_trainer_that_goes_on_counts_the_epoch_and_not_the_clock(pipe: tuple[int, int]) -> None:
    told: list[Sequence[Any]] = []

    def run_job(job: TrialJob) -> TrialResult | None:
        job.on_curve(EARLIER, 0)
        job.on_epoch(epoch(3, 101.5), 0)
        told.append(EARLIER)
        return None

    line, other = Pipe()
    order = job_of(device=Gpu(0, "GPU-0", "none", 0))  # whose epochs nobody answers
    _train(order, line, StopByte(StopByte.file()), Heartbeat(pipe[1], source=TRAINER), run_job)
    assert longest(pipe[0]) == [1.5]
    assert [other.recv().name for _ in range(2)] == ["on_curve", "on_epoch"]
    assert told == [EARLIER]
