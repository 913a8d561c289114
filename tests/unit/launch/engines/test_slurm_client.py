"""What Slurm's commands could answer besides what they do: programs of ours stand in for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import TunerError
from tuner.launch.engines.on_slurm import (
    SlurmSilentError,
    cancel,
    queue_of,
    slurm_environment,
    submit,
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def says(folder: Path, program: str, *, out: str = "", err: str = "", code: int = 0) -> None:
    for name, text in (("out", out), ("err", err)):
        (folder / name).write_text(text, encoding="utf-8")
    file = folder / program
    file.write_text(f"#!/bin/sh\ncat {folder}/out; cat {folder}/err >&2; exit {code}\n")
    file.chmod(0o755)


def line(number: str, state: str, status: str = "0", node: str = "", reason: str = "None") -> str:
    return f"{number:16}{state:24}{status:16}{node:128}{reason:200}\n"


def test_a_queue_is_read_with_what_is_not_listed_by_itself(programs: Path) -> None:
    lines = line("2", "RUNNING", node="n1") + line("[3-4]", "PENDING", reason="Resources, really")
    says(programs, "squeue", out=lines + line("1", "FAILED", str(143 << 8)) + "\n")
    running, pending, failed = queue_of(7)
    assert (running.number, running.node) == (2, "n1")
    assert (pending.number, pending.reason) == (None, "Resources, really")
    assert (failed.number, failed.status) == (1, 143 << 8)


@pytest.mark.parametrize(
    "answer",
    ["hello", line("1", "RUN NING"), line("x", "RUNNING"), line("1", "RUNNING", "-1"), "\x1b[2J"],
)
def test_what_is_no_queue_is_not_taken_for_one(programs: Path, answer: str) -> None:
    says(programs, "squeue", out=answer)
    with pytest.raises(SlurmSilentError) as refused:
        queue_of(7)
    assert str(refused.value).isprintable()


def test_a_job_that_slurm_has_forgotten_has_no_tasks(programs: Path) -> None:
    says(programs, "squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert queue_of(7) == []


def test_a_submission_is_a_number_or_an_error(programs: Path, tmp_path: Path) -> None:
    says(programs, "sbatch", out="12;cluster\n")
    assert submit("", slurm_environment(), tmp_path) == 12
    says(programs, "sbatch", out="Submitted batch job 12\n")
    with pytest.raises(TunerError, match="instead of a job's number"):
        submit("", slurm_environment(), tmp_path)
    says(programs, "sbatch", err="sbatch: error: who are you\n", code=1)
    with pytest.raises(TunerError, match="did not take the workers: sbatch: error: who are you"):
        submit("", slurm_environment(), tmp_path)


def test_without_slurm_it_is_said_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TunerError, match="squeue is not on the PATH; check with: tuner doctor"):
        queue_of(7)


def test_what_is_over_already_needs_no_cancelling(programs: Path) -> None:
    says(programs, "scancel", err="scancel: error: Invalid job id 7\n", code=1)
    cancel(7)
    says(programs, "scancel", err="scancel: error: Unable to contact slurm controller\n", code=1)
    with pytest.raises(SlurmSilentError, match="Unable to contact"):
        cancel(7)


def test_variables_that_would_steer_slurm_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SBATCH_ARRAY_INX", "SBATCH_SIGNAL", "SQUEUE_FORMAT", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "x")
    assert "SBATCH_ACCOUNT" in slurm_environment()
    assert not {"SBATCH_ARRAY_INX", "SBATCH_SIGNAL", "SQUEUE_FORMAT"} & set(slurm_environment())
