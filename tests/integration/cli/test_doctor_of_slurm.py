from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slurm_cluster import SlurmCluster
from tuner.cli.machine import examine_slurm


def test_a_cluster_that_answers_is_described(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    found = {check.name: check for check in examine_slurm(storage="postgresql://ann@dbhost/tuner")}
    assert "slurm" in found["Slurm's commands"].detail
    assert found["controller"].level == "ok"
    assert "work* (up, at most 1-00:00:00, 1 nodes)" in found["partitions"].detail
    assert found["GPUs of Slurm"].detail == "gpu:2"
    assert found["shared database"].level == "ok"


def test_a_controller_that_is_away_and_a_file_for_a_database_are_errors(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.of_nobody(tmp_path)))
    found = {check.name: check for check in examine_slurm(storage="sqlite:///tuner.db")}
    assert found["controller"].level == "error"
    assert found["shared database"].level == "error"


def test_a_host_without_slurm_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = {check.name: check for check in examine_slurm(storage="postgresql://ann@localhost/x")}
    assert found["Slurm's commands"].level == "error"
    assert found["Slurm's commands"].detail.startswith(
        "sbatch, squeue, scancel, scontrol not found"
    )
    assert found["shared database"].level == "notice"
