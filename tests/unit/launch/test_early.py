"""Workers that are started before anybody knows what they will work at: short commands here."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.cli_processes import PATIENCE_S, wait_for
from tuner.devices import CpuCores, Gpu
from tuner.files.child import last_line
from tuner.files.environment import STORAGE_VARIABLE
from tuner.launch.child import Child, EarlyWorkers
from tuner.launch.crew import Crew
from tuner.storage.url import absolute, parse_url

DEVICE, OTHER = CpuCores((0,)), CpuCores((1,))


def early(folder: Path, script: str) -> EarlyWorkers:
    return EarlyWorkers(
        devices=[DEVICE],
        command=["/bin/sh", "-c", script],
        options=["--more"],
        environment=dict(os.environ),
        log_folder=folder / "logs",
    )


def ended(child: Child) -> int:
    assert child.process is not None
    code = child.process.popen.wait(PATIENCE_S)
    child.deafen()
    return code


def test_it_waits_until_it_hears_what_to_work_at(tmp_path: Path) -> None:
    with early(tmp_path, 'echo "$@"; read names; echo "works at $names"') as workers:
        waiting = workers._waiting[DEVICE.label]
        assert workers.take(OTHER, "small") is None
        assert waiting.runs
        child = workers.take(DEVICE, "small,large")
        assert child is waiting
        assert workers.take(DEVICE, "small,large") is None, "it is taken"
    assert ended(child) == 0, "whoever took it keeps it"
    said = child.log_path.read_text()
    assert "--supervised-by" in said
    assert "--more" in said
    assert said.endswith("works at small,large\n")


def test_what_nobody_took_is_gone_and_leaves_no_empty_log(tmp_path: Path) -> None:
    with early(tmp_path, "read names") as workers:
        (child,) = workers._waiting.values()
        assert child.runs
    assert not child.runs
    assert list(tmp_path.iterdir()) == []


def test_what_waits_on_another_device_than_will_be_worked_on_is_ended_at_once(
    tmp_path: Path,
) -> None:
    with early(tmp_path, "read names") as workers:
        waiting = workers._waiting[DEVICE.label]
        workers.keep([DEVICE])
        assert waiting.runs
        workers.keep([CpuCores((0, 1), parts=2)])
        assert not waiting.runs
        assert workers.take(DEVICE, "small") is None


def test_what_it_said_before_it_was_ended_stays(tmp_path: Path) -> None:
    with early(tmp_path, "echo no such device; read names") as workers:
        (child,) = workers._waiting.values()
        wait_for(child.log_path.read_text, "its words")
    assert last_line(child.log_path) == "no such device"


def test_one_that_ended_by_itself_is_not_taken(tmp_path: Path) -> None:
    with early(tmp_path, "exit 2") as workers:
        (child,) = workers._waiting.values()
        assert child.process is not None
        child.process.popen.wait(PATIENCE_S)
        assert workers.take(DEVICE, "small") is None


def test_a_crew_starts_early_on_gpus_only(tmp_path: Path) -> None:
    gpu = Gpu(index=0, number=3, uuid="GPU-3", name="Example")
    crew = Crew(devices=[gpu, DEVICE], task="etth", data_dir=tmp_path, deadline=None)
    workers = crew.early(absolute(parse_url(f"sqlite:///{tmp_path}/studies.db")))
    assert workers.devices == [gpu]
    assert workers.options == ["--task", "etth", "--data-dir", str(tmp_path)]
    assert workers.environment[STORAGE_VARIABLE].endswith("studies.db")
    assert workers.log_folder == tmp_path / "logs"
