"""The batch script as a shell runs it, without Slurm: what it does with signals and exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support.cli_processes import PATIENCE_S, wait_for
from tuner.launch.engines.on_slurm import SlurmSettings, batch_script

WORKER = """
import pathlib, signal, sys, time
def hand_back(number, frame):
    time.sleep(0.05)
    sys.exit(int(sys.argv[1]))
signal.signal(signal.SIGTERM, hand_back)
pathlib.Path("there").touch()
time.sleep(600)
"""


def started(
    folder: Path, *, ends_with: int, told: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    text = batch_script(
        SlurmSettings(),
        [sys.executable, "-c", WORKER, str(ends_with), "a 'study' $(touch planted) \n`id`"],
        workers=1,
        on_cpu=True,
        folder=folder,
    )
    environment = os.environ | {"TUNER_STORAGE": "postgresql://somewhere"} | dict(told)
    process = subprocess.Popen(["bash", "-c", text], env=environment, cwd="/")
    wait_for((folder / "there").exists, "the worker")
    return process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One whose name a shell would trip over."""
    made = tmp_path / "a 'folder' $(id)\n#SBATCH --uid=0"
    made.mkdir()
    return made


@pytest.mark.parametrize(
    ("told", "ends_with", "code"),
    [
        (signal.SIGUSR2, 143, 0),
        (signal.SIGTERM, 143, 143),
        (signal.SIGUSR1, 0, 0),
        (signal.SIGUSR1, 1, 1),
        (signal.SIGTERM, 2, 2),
    ],
)
def test_the_shell_passes_the_signal_on_and_ends_as_its_worker_did(
    folder: Path, told: signal.Signals, ends_with: int, code: int
) -> None:
    process = started(folder, ends_with=ends_with)
    process.send_signal(told)
    assert process.wait(PATIENCE_S) == code
    assert not (folder / "planted").exists()


def test_a_controller_that_does_not_answer_is_asked_again(folder: Path, tmp_path: Path) -> None:
    """It did not answer twice; a task that is not queued again is a worker less."""
    programs = tmp_path / "programs"
    programs.mkdir()
    scontrol = programs / "scontrol"
    scontrol.write_text(
        f'#!/bin/bash\necho "$@" >> {tmp_path}/asked\n[ $(wc -l < {tmp_path}/asked) -gt 2 ]\n'
    )
    scontrol.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    process = started(folder, ends_with=143, told=array | {"PATH": path})
    process.send_signal(signal.SIGUSR1)
    assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "asked").read_text().splitlines() == ["requeue 7_3"] * 3


def test_without_a_database_nothing_is_begun(tmp_path: Path) -> None:
    text = batch_script(
        SlurmSettings(), ["touch", "begun"], workers=1, on_cpu=True, folder=tmp_path
    )
    kept = {name: value for name, value in os.environ.items() if name != "TUNER_STORAGE"}
    done = subprocess.run(
        ["bash", "-c", text], env=kept, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "set it to the address of the database" in done.stderr
    assert not (tmp_path / "begun").exists()
