"""Workers on GPUs that are made up: `free` finds one without a worker, whoever looks at the same
time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.devices import Gpu, lock
from tuner.devices.lock import GpuAssignment, assign_beside, assign_free
from tuner.errors import TunerError

GPUS = tuple(Gpu(index, f"GPU-{index}", "Example", index) for index in range(4))
TAKE = """
import sys
from tuner.devices import Gpu
from tuner.devices.lock import assign_free
sys.stdin.readline()
assignment = assign_free([Gpu(index, f"GPU-{index}", "Example", index) for index in range(4)])
print(assignment.gpu.index, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    return lock.lock_folder()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Four processes that take a GPU each as soon as they are told."""
    environment = {**os.environ, "TUNER_LOCK_DIR": str(tmp_path / "locks")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def leave(*assignments: GpuAssignment) -> None:
    for assignment in assignments:
        assignment.leave()


def test_each_takes_another_gpu_until_none_is_free() -> None:
    assignments = [assign_free(GPUS) for _ in GPUS]
    assert [assignment.gpu for assignment in assignments] == list(GPUS)
    with pytest.raises(
        TunerError, match=r"^--gpu free: each of the 4 GPUs here has a worker; name one with"
    ):
        assign_free(GPUS)
    with pytest.raises(TunerError, match=r"^--gpu free: the GPU here has a worker"):
        assign_free(GPUS[:1])
    assignments[2].leave()
    again = assign_free(GPUS)
    assert again.gpu is GPUS[2]
    leave(again, *(assignments[i] for i in (0, 1, 3)))


def test_a_gpu_that_was_named_is_not_free_as_long_as_any_of_its_workers_lives() -> None:
    first, second = assign_beside(GPUS[0]), assign_beside(GPUS[0])
    first.leave()
    other = assign_free(GPUS)
    assert other.gpu is GPUS[1]
    second.leave()
    back = assign_free(GPUS)
    assert back.gpu is GPUS[0]
    beside = assign_beside(GPUS[0])  # by name, also where somebody found it free
    leave(other, back, beside)


def test_processes_that_look_at_once_find_different_gpus_and_leave_them_when_they_are_killed(
    workers: list[subprocess.Popen[str]],
) -> None:
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("now\n")
        process.stdin.flush()
    found = [int(process.stdout.readline()) for process in workers if process.stdout is not None]
    assert sorted(found) == [0, 1, 2, 3]
    with pytest.raises(TunerError):
        assign_free(GPUS)
    workers[1].kill()
    workers[1].wait()
    assignment = assign_free(GPUS)
    assert assignment.gpu.index == found[1]
    assignment.leave()


def test_a_named_gpu_needs_no_folder_that_can_be_written(folder: Path) -> None:
    folder.write_text("a file")
    assert assign_beside(GPUS[1]) == GpuAssignment(GPUS[1], None)
