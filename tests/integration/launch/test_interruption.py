"""Whatever stops a launch, no trial is lost, none counts twice, and no worker stays behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
import torch

from tests.support.cli_processes import (
    CORES,
    STUDY,
    Bench,
    finished,
    interrupt,
    wait_for,
    workers_of,
)
from tuner.config import TrainingSettings
from tuner.data.task import load_task
from tuner.devices import CpuCores
from tuner.errors import TunerError
from tuner.launch import Supervisor
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import seed_of_trial
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.data_file import data_of
from tuner.study.open import OpenStudy, create_or_resume
from tuner.trial.run import run_trial
from tuner.worker.trainer import on_device

pytestmark = pytest.mark.slow

ENDLESS = 1_000_000
"""Epochs of a trial that only an interruption ends."""
MINUTES = 60
"""Epochs of a trial that ends within a second, and lasts a minute where it is trained slowly."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")


def assert_handed_back(bench: Bench, running: int = 1) -> None:
    assert [state for _, state in bench.trials()] == ["WAITING"] * running
    assert {state for state, _ in bench.claims()} == {"returned"}


def test_ctrl_c_hands_back_and_the_next_launch_finishes_exactly(bench: Bench) -> None:
    slow = bench.slowed()
    with bench.launched(3, workers=2, epochs=MINUTES) as launch:
        bench.wait_until_training(launch, workers=2)
        during = bench.run("status", "--json").json()["studies"][0]
        ended = interrupt(launch)
        assert ended.code == 130, ended.err
        assert workers_of(launch.pid) == []
    assert during["trials"]["running"] == 2
    assert len({worker["trial"] for worker in during["workers"]}) == 2
    assert "Traceback" not in ended.err
    assert_handed_back(bench, running=2)
    status = bench.run("status", "--json").json()["studies"][0]
    assert (
        status["trials"]["waiting"],
        status["trials"]["running"],
        status["trials"]["failed"],
    ) == (2, 0, 0)
    assert status["workers"] == []
    slow.unlink()
    resumed = bench.launch(3, workers=2, epochs=MINUTES)
    assert resumed.code == 0, resumed.err
    assert bench.trials() == [(number, "COMPLETE") for number in range(3)]
    assert sorted(state for state, _ in bench.claims()) == ["finished"] * 3 + ["returned"] * 2


def test_a_second_ctrl_c_kills_at_once_and_still_hands_back(bench: Bench) -> None:
    """Each a Python of its own, as people start it."""
    with bench.launched(2, epochs=ENDLESS, afresh=True) as launch:
        bench.wait_until_training(launch)
        (worker,) = workers_of(launch.pid)
        worker.suspend()  # it cannot even hear the first
        launch.send_signal(signal.SIGINT)
        with pytest.raises(psutil.TimeoutExpired):
            worker.wait(1.0)
        ended = interrupt(launch)
        assert ended.code == 130, ended.err
        assert workers_of(launch.pid) == []
    assert_handed_back(bench)


def undisturbed(study: OpenStudy) -> tuple[TrialResult, list[tuple[float, float | None]]]:
    """The study's first trial, trained here in one go: its result, and the losses of its epochs."""
    curve: list[tuple[float, float | None]] = []
    threads, device = torch.get_num_threads(), CpuCores((CORES[0],))
    try:
        data = on_device(data_of([study], data_dir=None, task=None), device)
        result = run_trial(
            study.definition,
            study.definition.defaults,
            seed_of_trial(0, root=study.membership.seed_root),
            data[study.definition.data_hash],
            device,
            on_epoch=lambda record: curve.append((record.train_loss, record.val_loss)),
            should_stop=lambda: None,
        )
    finally:
        torch.set_num_threads(threads)
    assert result is not None
    return result, curve


def test_a_killed_workers_trial_goes_on_from_its_checkpoint_to_the_result_it_would_have_had(
    bench: Bench,
) -> None:
    epochs, slow = MINUTES, bench.slowed()
    with bench.launched(1, "--checkpoint-every", "0.1s", epochs=epochs) as launch:
        wait_for(lambda: list(bench.folder.rglob("trial-000000-*.safetensors")), "a checkpoint")
        (worker,) = workers_of(launch.pid)
        worker.kill()
        slow.unlink()
        ended = finished(launch)
    assert ended.code == 0, ended.err
    assert bench.claims() == [("lost", 0), ("finished", 0)]
    assert list(bench.folder.rglob("*.safetensors")) == [], "the trial is over"
    with bench.opened() as study:
        (trial,), curve = study.optuna.trials, study.epochs.of_trial(0)
        whole, its_losses = undisturbed(study)
    assert whole.values is not None
    assert study.definition.space.true(trial.params) == study.definition.defaults.as_dict()
    assert trial.values[1] == whole.values[1]
    assert [(row.train_loss, row.val_loss) for row in curve] == its_losses
    # The clock is the sum: it goes on where the checkpoint's stood, and counts only what was
    # trained since.
    a, elapsed = trial.user_attrs, [row.elapsed_s for row in curve]
    assert (a["attempts"], a["epochs"], whole.recorded.resumed_from_epoch) == (2, epochs, None)
    assert elapsed == sorted(elapsed)
    carried = elapsed[a["resumed_from_epoch"] - 1]
    assert 0 < trial.values[0] - carried <= a["timed_until"] - a["timed_from"]
    ((_, interrupted_at),) = a["timed_earlier"]
    assert interrupted_at < a["timed_from"]


def study_on_other_data(bench: Bench) -> None:
    """A study whose data nobody here has."""
    made = StudyDefinition.of(
        load_study_file(str(bench.folder / "small.toml")),
        task=load_task(str(bench.folder / "tiny.toml")).definition(),
        data_hash="0" * 64,
        training=TrainingSettings(max_epochs=ENDLESS),
    )
    database = open_database(parse_url(bench.url))
    create_or_resume(database, STUDY, made, trials=1)
    database.close()


def test_a_worker_refuses_data_that_the_study_was_not_made_with(bench: Bench) -> None:
    study_on_other_data(bench)
    worker = bench.run("worker", "--study", STUDY, "--cpu")
    assert worker.code == 1
    assert f"the data here is not what study '{STUDY}' was made with" in worker.lines[-1]
    assert "Traceback" not in worker.err
    assert bench.claims() == []


def test_workers_that_cannot_be_kept_alive_end_the_launch_with_the_reason(bench: Bench) -> None:
    study_on_other_data(bench)
    with bench.opened() as study:
        supervisor = Supervisor(
            studies=[study],
            queues=[study.ledger],
            devices=[CpuCores((CORES[0],))],
            worker_options=["--nonsense"],
            environment=bench.environment,
            log_folder=bench.folder / "logs",
        )
        with pytest.raises(
            TunerError, match=r"could not be kept alive: No such option: --nonsense.*worker-.*\.log"
        ):
            supervisor.run(lambda: None)
    assert workers_of(os.getpid()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
