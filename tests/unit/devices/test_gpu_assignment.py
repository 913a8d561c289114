"""Seats at GPUs that are made up: `free` finds one without a worker, whoever looks at the same
time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.devices import Gpu, lock
from tuner.devices.gpu_assignment import Seat, free_seat, seat_beside
from tuner.errors import TunerError

GPUS = tuple(Gpu(index, f"GPU-{index}", "Example", index) for index in range(4))
TAKE = """
import sys
from tuner.devices import Gpu
from tuner.devices.gpu_assignment import free_seat
sys.stdin.readline()
seat = free_seat([Gpu(index, f"GPU-{index}", "Example", index) for index in range(4)])
print(seat.gpu.index, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # it keeps what it found
    return lock.lock_folder()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Four processes that take a seat each as soon as they are told."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
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


def leave(*seats: Seat) -> None:
    for seat in seats:
        seat.leave()


def test_each_takes_another_gpu_until_none_is_free() -> None:
    seats = [free_seat(GPUS) for _ in GPUS]
    assert [seat.gpu for seat in seats] == list(GPUS)
    with pytest.raises(
        TunerError, match=r"^--gpu free: each of the 4 GPUs here has a worker; name one with"
    ):
        free_seat(GPUS)
    with pytest.raises(TunerError, match=r"^--gpu free: the GPU here has a worker"):
        free_seat(GPUS[:1])
    seats[2].leave()
    again = free_seat(GPUS)
    assert again.gpu is GPUS[2]
    leave(again, *(seats[i] for i in (0, 1, 3)))


def test_a_gpu_that_was_named_is_not_free_as_long_as_any_of_its_workers_lives() -> None:
    first, second = seat_beside(GPUS[0]), seat_beside(GPUS[0])
    first.leave()
    other = free_seat(GPUS)
    assert other.gpu is GPUS[1]
    second.leave()
    back = free_seat(GPUS)
    assert back.gpu is GPUS[0]
    beside = seat_beside(GPUS[0])  # by name, also where somebody found it free
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
        free_seat(GPUS)
    workers[1].kill()
    workers[1].wait()
    seat = free_seat(GPUS)
    assert seat.gpu.index == found[1]
    seat.leave()


def test_a_seat_is_kept_while_the_process_becomes_another_program(tmp_path: Path) -> None:
    seat = free_seat(GPUS[:1])
    assert seat.descriptor is not None
    assert not os.get_inheritable(seat.descriptor)
    seat.keep()
    assert os.get_inheritable(seat.descriptor)
    seat.leave()


def test_a_named_gpu_needs_no_folder_that_can_be_written(folder: Path) -> None:
    folder.write_text("a file")
    assert seat_beside(GPUS[1]) == Seat(GPUS[1], None)
