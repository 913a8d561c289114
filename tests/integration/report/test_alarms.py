"""Alarms: from the epochs of a training that slows down to what status, trial and record say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tests.support.in_process_worker import DEVICE
from tests.support.small_study import STUDY_TOML
from tests.support.tiny_tasks import tiny_task
from tuner.config import EpochRecord, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.windows import to_device
from tuner.devices import Observation
from tuner.files.toml_file import read_toml, validate
from tuner.record import Recorded
from tuner.report.study_status import SO_FAR, Alarm, alarms_of, in_lines, read_trial, status_of
from tuner.report.terminal.tables import print_status, print_summary
from tuner.report.terminal.trial_sections import print_trial
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import StudyFile
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import Claim, TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.results import read_results
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import run_job
from tuner.worker.loop import Worker

SLOWING = """
import time

import torch
from torch import nn

class Slowing(nn.Module):
    calls = 0

    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        s = self.shapes = shapes
        self.level = nn.Parameter(torch.zeros(s.horizon, s.n_targets, s.n_quantiles))

    def forward(self, past, future, static):
        if self.training:
            Slowing.calls += 1
            time.sleep(2e-4 * Slowing.calls**2)
        return self.level.expand(len(past), *self.level.shape)
"""
"""Learns one number for each quantile, and waits ever longer with each batch: at last a fifth of a
second."""
FELL = "throughput fell: an epoch went from 1 to 4 s between epochs 3 and 19"
STEADY, SLOWER = [1.0] * 10, [4.0] * 10


def rows(seconds: Iterable[float], repeat: int = 0) -> list[EpochRow]:
    found, elapsed_s = [], 0.0
    for epoch, each in enumerate(seconds, start=1):
        elapsed_s += each
        found.append(EpochRow(epoch, 1.0, 0.5, 1e-3, elapsed_s, repeat))
    return found


def begin(study: OpenStudy, worker: str = "w") -> Claim:
    study.roster.join(worker, host="here", pid=7, device="GPU 3", device_uuid="GPU-3")
    claim = study.ledger.claim(worker)
    assert claim is not None
    assert study.ask(claim) is not None
    return claim


def tell(study: OpenStudy, claim: Claim, told: list[EpochRow], worker: str = "w") -> None:
    study.epochs.write(claim.trial_number, claim.work_id, told)
    last = told[-1].epoch
    study.roster.report(worker, trial_number=claim.trial_number, epoch=last, val_loss=0.5)


def alarms(study: OpenStudy) -> list[tuple[int, bool, str]]:
    return [dataclasses.astuple(each) for each in alarms_of(study, read_results(study))]


def test_a_trial_at_work_is_judged_by_its_epochs_so_far(study: OpenStudy) -> None:
    claim = begin(study)
    assert alarms(study) == []
    tell(study, claim, rows(STEADY))
    assert alarms(study) == []
    tell(study, claim, rows(STEADY + SLOWER))
    assert alarms(study) == [(0, True, FELL)]


@SQLITE_ALONE
def test_the_windows_of_an_epoch_are_those_of_a_trial_that_has_ended(study: OpenStudy) -> None:
    first = begin(study)
    ended = Recorded(stopped_by="converged", epoch_windows=100, slowed="it fell")
    assert study.ledger.finish(first, TrialResult(TrialState.COMPLETE, (2.0, 1.0), ended))
    tell(study, begin(study), rows(STEADY + SLOWER))
    said = "throughput fell from 100 to 25 samples/s between epochs 3 and 19"
    assert alarms(study) == [(0, False, "it fell"), (1, True, said)]


@SQLITE_ALONE
def test_a_run_that_is_made_again_is_not_mixed_with_the_one_before(study: OpenStudy) -> None:
    """The epochs of a contaminated run that the next has not reached yet are still in the table."""
    claim = begin(study)
    tell(study, claim, rows([1.0] * 14 + [4.0] * 14))
    study.roster.report("w", trial_number=0, epoch=14)
    assert alarms(study) == []
    study.roster.report("w", trial_number=0, epoch=28)
    assert len(alarms(study)) == 1


@SQLITE_ALONE
def test_a_trial_that_goes_on_on_a_slower_host_raises_no_alarm(study: OpenStudy) -> None:
    first = begin(study)
    tell(study, first, rows(STEADY))
    study.ledger.reap(worker="w", state="returned")
    study.roster.leave("w")
    again = begin(study, "other")
    assert again.trial_number == first.trial_number
    tell(study, again, rows(STEADY + SLOWER), "other")
    assert study.epochs.taken_over([0]) == {(0, 0): 10}
    assert alarms(study) == []
    tell(study, again, rows(STEADY + SLOWER + [12.0] * 10), "other")
    assert len(alarms(study)) == 1


@SQLITE_ALONE
def test_nobody_is_accused_whose_worker_is_gone_and_each_seed_is_judged_alone(
    study: OpenStudy,
) -> None:
    claim = begin(study)
    tell(study, claim, rows(STEADY + SLOWER) + rows([4.0] * 14, repeat=1))
    assert alarms(study) == [(0, True, FELL)]
    study.roster.leave("w")
    assert alarms(study) == []


def test_a_terminal_shows_those_at_work_and_the_latest_of_the_others() -> None:
    ended = [Alarm(trial=number, running=False, what="fell") for number in range(5)]
    at_work = Alarm(trial=1, running=True, what="falls")
    lines = in_lines([at_work, *ended])
    assert lines == [
        "trial 3: fell",
        "trial 4: fell",
        f"trial 1: falls, {SO_FAR}",
        "3 earlier ones; see: tuner trial NUMBER",
    ]
    assert in_lines([]) == []


class Alone:
    """A look at a device that nobody else uses, whatever else runs beside this test."""

    def __init__(self, device: object) -> None:
        del device

    def clock_starts(self) -> None:
        """Nothing counts joules."""

    def finish(self) -> Observation:
        return Observation(contaminated=False, why="")


@pytest.fixture
def slowing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterable[tuple[OpenStudy, list[list[tuple[int, bool, str]]]]]:
    """A study of one trial that a worker has run, of a network that sleeps ever longer; and the
    alarms of status after each of its epochs."""
    monkeypatch.setattr("tuner.trial.run.Watch", Alone)
    monkeypatch.setattr("tuner.worker.work_source.REPORT_S", 0.0)
    monkeypatch.setattr("tuner.worker.work_source.MOST_OF_TIME", 1e6)
    (tmp_path / "slowing.py").write_text(SLOWING)
    described = tmp_path / "slowing.toml"
    own = STUDY_TOML.replace('"rmsnorm"', f'"{tmp_path}/slowing.py:Slowing"')
    described.write_text(own.replace("n_blocks = 1", "").replace("[model_settings]", ""))
    task = tiny_task()
    prepared = prepare(task, cache_dir=tmp_path / "prepared")
    definition = StudyDefinition.of(
        validate(read_toml(described), StudyFile),
        task=task.definition(),
        data_hash=prepared.data_hash,
        training=TrainingSettings(max_epochs=24),
    )
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    study = create_or_resume(database, "slowing", definition, trials=1)
    study.set_policy(SearchPolicy(sampler="random", reruns=0))
    data, looks = {prepared.data_hash: to_device(prepared, "cpu")}, []

    def run(job: TrialJob) -> TrialResult | None:
        def epoch_ended(record: EpochRecord, repeat: int) -> None:
            job.on_epoch(record, repeat)
            looks.append(alarms(study))

        return run_job(dataclasses.replace(job, on_epoch=epoch_ended), data)

    Worker([study], DEVICE, run, name="ann").run()
    yield study, looks
    database.close()


def test_a_network_that_slows_down_is_told_while_it_trains_and_afterwards(
    slowing: tuple[OpenStudy, list[list[tuple[int, bool, str]]]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    study, looks = slowing
    assert looks[11] == []  # too early to tell
    ((number, running, what),) = looks[-1]
    assert (number, running) == (0, True)
    assert what.startswith("throughput fell: an epoch went from ")

    (record,) = read_results(study).records
    said = record.recorded.slowed or ""
    assert said.startswith("throughput fell from ")
    assert said.endswith(" samples/s between epochs 4 and 22")
    assert record.recorded.gpu_busy is None
    assert 0 < (record.recorded.cpu_busy or 0.0) < 1.0  # it sleeps most of the time

    (alarm,) = json.loads(json.dumps(status_of(study)))["alarms"]
    assert alarm == {"trial": 0, "running": False, "what": said}
    for shown in (
        lambda: print_status([study]),
        lambda: print_summary([study], ["tuner", "launch"], ended="filled"),
    ):
        shown()
        assert f"trial 0: {said}" in capsys.readouterr().out
    detail = read_trial(study, 0)
    print_trial(detail)
    told = " ".join(capsys.readouterr().out.split())
    assert f"alarm {said}" in told
    assert "CPU cores, while the clock ran" in told
    assert "throughput " in told
    document = detail.as_dict()
    assert document["alarm"] == said
    found = document["throughput"]
    assert found["first_samples_per_s"] > 4 / 3 * found["last_samples_per_s"]
