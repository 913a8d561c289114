"""A program that trains on a GPU, whose driver is stood in for: what it and its children have there
is the trial's own, at each look, and what anybody else has is a stranger's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.support.programs import heard_by, program_job, trained
from tuner.config import EpochRecord
from tuner.devices import Gpu, lock, watch
from tuner.trial.program import program_process

GPU = Gpu(0, "GPU-of-a-test", "none", 0)
STRANGER = 2**22 + 1

WITH_A_CHILD = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("pids.half", "w").write(f"{os.getpid()} {child.pid}")
os.rename("pids.half", "pids")
say(started=True)
time.sleep(0.02)
if told["resume"] is None: epoch(1, .5)
open(os.path.join(told["checkpoint_folder"], "kept"), "w").close()
while not os.path.exists("go on"): time.sleep(0.01)
epoch(2, .4)
say(final={"test_mql": .5, "epochs": 2})
"""


class Driver:
    """Lists whoever of a program lives, by the numbers that the host has for them, and others."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2

    def __init__(self, pids: Path) -> None:
        self.pids = pids
        self.others: set[int] = set()
        self.numbers_from = 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the name it has there
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:  # noqa: N802
        told = self.pids.read_text().split() if self.pids.exists() else []
        living = {int(pid) for pid in told if psutil.pid_exists(int(pid))}
        listed = {self.numbers_from + pid for pid in living} | self.others
        return [SimpleNamespace(pid=pid) for pid in listed]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:  # noqa: N802
        return 1000

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:  # noqa: N802
        return 40

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        return 2_000


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Driver:
    there = Driver(tmp_path / "pids")

    @contextlib.contextmanager
    def nvml() -> Iterator[Driver]:
        yield there

    monkeypatch.setattr(watch, "nvml", nvml)
    monkeypatch.setattr(program_process, "ASKED_S", 0.2)
    return there


def notes_after_its_first_epoch(tmp_path: Path, text: str = WITH_A_CHILD) -> dict[str, Any]:
    """What whoever continues after a kill -9 finds: written while the program trains."""
    kept: list[bytes] = []

    def look() -> None:
        notes = list((tmp_path / "checkpoints").rglob("notes.json"))
        if notes and not kept:
            kept.append(notes[0].read_bytes())
            (tmp_path / "go on").touch()

    epochs: list[EpochRecord] = []
    folder = tmp_path / "checkpoints"
    job = program_job(
        tmp_path, text, folder=folder, device=GPU, should_stop=look, **heard_by(epochs)
    )
    result = trained(job)
    assert result is not None
    assert result.recorded.energy_unresolved
    assert len(epochs) == 2
    found: dict[str, Any] = json.loads(kept[0])
    return found


def test_a_program_and_its_children_are_no_strangers(driver: Driver, tmp_path: Path) -> None:
    notes = notes_after_its_first_epoch(tmp_path)
    assert len((tmp_path / "pids").read_text().split()) == 2
    assert (notes["contaminated"], notes["contamination"]) == (False, "")
    assert notes["energy_j"] == 0.0


def test_who_goes_on_after_a_kill_goes_on_clean(driver: Driver, tmp_path: Path) -> None:
    """kill -9 of the process that trains, while the program is at work."""
    folder = tmp_path / "checkpoints"
    worker = os.fork()
    if worker == 0:

        def end() -> None:
            if {"notes.json", "kept"} <= {path.name for path in folder.rglob("*")}:
                os.kill(os.getpid(), signal.SIGKILL)

        trained(program_job(tmp_path, WITH_A_CHILD, folder=folder, device=GPU, should_stop=end))
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == -signal.SIGKILL
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    (tmp_path / "go on").touch()
    result = trained(program_job(tmp_path, WITH_A_CHILD, folder=folder, device=GPU))
    assert result is not None
    recorded = result.recorded
    assert (recorded.resumed_from_epoch, recorded.contaminated) == (1, False), recorded.failure


def test_a_stranger_beside_it_is_still_named(driver: Driver, tmp_path: Path) -> None:
    driver.others = {STRANGER}
    notes = notes_after_its_first_epoch(tmp_path)
    assert notes["contaminated"]
    assert notes["contamination"] == f"other processes on the GPU: {STRANGER}"


def test_in_a_container_it_is_no_stranger_either(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes have other numbers there: they are known by CUDA, which they have open."""
    device = tmp_path / "cuda"
    device.touch()
    monkeypatch.setattr(lock, "CUDA_DEVICE", str(device))
    driver.numbers_from = STRANGER
    opened = f"cuda = open({str(device)!r})\nsay(started=True)"
    text = WITH_A_CHILD.replace("say(started=True)", opened).replace(" {child.pid}", "")
    assert not notes_after_its_first_epoch(tmp_path, text)["contaminated"]
