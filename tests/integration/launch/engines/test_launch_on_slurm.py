"""Workers that a real Slurm places: whatever ends them, each trial has one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_processes import Bench, finished, interrupt, kill, wait_for
from tests.support.postgres_cluster import PASSWORD, Cluster
from tests.support.slurm_cluster import URGENT, SlurmCluster

ON_SLURM = ("--on", "slurm", "--placement", "partition=work,time=60")
VERIFY = (
    "verify --variant small.toml --study tiny-small --task tiny.toml "
    "--choose front --top 1 --seeds 2"
)
MINUTES = 60
"""Epochs of a trial that ends within a second, and lasts a minute where it is trained slowly."""
LONG = 5
"""So many of them, slowly trained, take longer than a training that leaves no checkpoint."""


@pytest.fixture
def bench(postgres: Cluster, slurm: SlurmCluster, tmp_path: Path) -> Iterator[Bench]:
    name = postgres.create_database()
    yield Bench(tmp_path, postgres.url(name), dict(slurm.environment))
    slurm.clear()
    postgres.empty_database(name)


def handed_back(bench: Bench) -> int:
    return Counter(state for state, _ in bench.claims())["returned"]


def array_of(slurm: SlurmCluster) -> str:
    """The number of the youngest job."""
    return max((task.partition("_")[0] for task in slurm.tasks()), key=int)


@pytest.mark.slow
def test_at_a_time_limit_and_preempted_a_trial_is_handed_back_and_goes_on_where_it_was(
    bench: Bench, slurm: SlurmCluster
) -> None:
    slow = bench.slowed()
    with bench.launched(2, *ON_SLURM, workers=2, epochs=MINUTES) as launch:
        bench.wait_until_training(launch, workers=2, epochs=LONG)
        job = array_of(slurm)
        # As Slurm does some time before the limit.
        slurm.ask("scancel", "--batch", "--signal=USR1", f"{job}_1")
        wait_for(lambda: handed_back(bench) == 1, "a trial that is handed back")
        slurm.wait_for_state(f"{job}_1", "PENDING")
        slurm.ask("sbatch", f"--partition={URGENT}", "-c2", "--output=/dev/null", "--wrap=true")
        wait_for(lambda: handed_back(bench) == 2, "a second one")
        slow.unlink()
        slurm.begin_again(f"{job}_1")  # and does the work of both: a Python less to start
        ended = finished(launch)
    assert ended.code == 0, ended.err
    assert bench.trials() == [(0, "COMPLETE"), (1, "COMPLETE")]
    assert Counter(state for state, _ in bench.claims()) == {"returned": 2, "finished": 2}
    with bench.opened() as study:
        for trial in study.optuna.trials:
            assert trial.user_attrs["resumed_from_epoch"] >= 1
            assert trial.user_attrs["attempts"] == 2
    assert [slurm.tasks()[f"{job}_{task}"] for task in (1, 2)] == ["COMPLETED", "CANCELLED"]


def test_ctrl_c_ends_the_array_and_hands_back(bench: Bench, slurm: SlurmCluster) -> None:
    bench.slowed()
    with bench.launched(2, *ON_SLURM, epochs=MINUTES) as launch:
        bench.wait_until_training(launch)
        script = slurm.ask("scontrol", "write", "batch_script", f"{array_of(slurm)}_1", "-")
        ended = interrupt(launch)
    assert "#SBATCH --array=1-1" in script
    assert PASSWORD[:4] not in script
    assert ended.code == 130, ended.err
    assert bench.claims() == [("returned", 0)]
    assert slurm.tasks() == {f"{array_of(slurm)}_1": "COMPLETED"}


@pytest.mark.slow
def test_an_array_outlives_its_launch_and_the_same_command_beside_it_ends_exactly(
    bench: Bench, slurm: SlurmCluster
) -> None:
    slow = bench.slowed()
    with bench.launched(3, *ON_SLURM, epochs=MINUTES) as killed:
        bench.wait_until_training(killed)
        first = array_of(slurm)
        kill([killed])
        killed.communicate()
        with bench.launched(3, *ON_SLURM, epochs=MINUTES) as again:
            wait_for(lambda: array_of(slurm) != first, "the second array")
            bench.wait_until_training(again, workers=2)
            slurm.stop("slurmctld")  # workers need none, and who looks on asks again
            slow.unlink()
            wait_for(lambda: bench.trials() == [(n, "COMPLETE") for n in range(3)], "all trials")
            slurm.start("slurmctld")
            ended = finished(again)
    assert ended.code == 0, ended.err
    assert [state for state, _ in bench.claims()] == ["finished"] * 3
    slurm.wait_for_state(f"{first}_1", "COMPLETED")


def test_a_verification_has_an_array_of_its_own(bench: Bench, slurm: SlurmCluster) -> None:
    study_file = bench.folder / "small.toml"
    # No epoch is ever better by this much than the first: each run converges with its second.
    converging = "patience = 1\nmin_delta = 1e6"
    impatient = study_file.read_text().replace("patience = 100000", converging)
    study_file.write_text(impatient, encoding="utf-8")
    assert bench.launch(1, epochs=1000).code == 0
    done = bench.run(*VERIFY.split(), "--cpu", "--workers", "1", *ON_SLURM, "--json")
    assert done.code == 0, done.err
    (study,) = done.json()["studies"]
    assert study["runs"] == {"waiting": 0, "running": 0, "finished": 2, "skipped": 0}
    assert set(slurm.tasks().values()) == {"COMPLETED"}


def test_workers_that_find_no_gpu_end_the_launch_with_what_they_said(
    bench: Bench, slurm: SlurmCluster
) -> None:
    wanted = bench.launch_arguments(1)
    at = wanted.index("--cpu")
    wanted[at : at + 3] = ["--gpus", "1"]
    done = bench.run(*wanted, "--on", "slurm", "--placement", "cores=1")
    assert done.code == 1
    last = done.lines[-1]
    assert "no worker on Slurm is left" in last
    assert "ended with exit code 2: --gpu free: no GPU is visible here" in last


def test_what_slurm_refuses_is_one_line(bench: Bench) -> None:
    done = bench.launch(1, "--on", "slurm", "--placement", "partition=none")
    assert (done.code, "Invalid partition" in done.lines[-1]) == (1, True), done.err
    assert "Traceback" not in done.err


def test_printed_the_script_is_not_submitted_and_the_studies_are_there(
    bench: Bench, slurm: SlurmCluster
) -> None:
    done = bench.launch(2, *ON_SLURM, "--print", workers=2)
    assert done.code == 0, done.err
    assert done.out.startswith("#!/bin/bash\n#SBATCH --job-name=tuner\n#SBATCH --array=1-2\n")
    assert PASSWORD[:4] not in done.out
    assert (bench.trials(), bench.claims()) == ([(0, "WAITING")], [])
    assert slurm.tasks() == {}
    assert (bench.folder / "storage" / "logs").is_dir(), "Slurm makes no folder for what they say"


def test_a_database_in_a_file_and_a_host_without_slurm_are_refused_in_one_line(
    bench: Bench, slurm: SlurmCluster, tmp_path: Path
) -> None:
    file = bench.run(
        *bench.launch_arguments(1), *ON_SLURM, TUNER_STORAGE=f"sqlite:///{tmp_path}/tuner.db"
    )
    assert (file.code, "share a PostgreSQL" in file.error) == (2, True)
    nowhere = bench.run(*bench.launch_arguments(1), *ON_SLURM, PATH="/nowhere")
    assert (nowhere.code, "sbatch, squeue, scancel, scontrol not found" in nowhere.error) == (
        2,
        True,
    )
    away = str(slurm.of_nobody(tmp_path))
    silent = bench.run(*bench.launch_arguments(1), *ON_SLURM, SLURM_CONF=away)
    assert (silent.code, "Slurm's controller does not answer" in silent.error) == (1, True)
