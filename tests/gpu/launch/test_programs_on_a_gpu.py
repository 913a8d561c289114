"""A program that trains on the GPU: it is no stranger there, its worker holds no memory beside it,
and what is killed gives its memory back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.cli_processes import (
    Bench,
    family_of,
    kill,
    strangers,
    wait_for,
    workers_of,
)
from tests.support.present import present
from tests.support.programs import program_job, trained, write_program
from tuner.api import load_study
from tuner.config import StopReason
from tuner.devices import list_gpus

pytestmark = pytest.mark.slow
ON_THE_GPU = """
import torch
torch.manual_seed(told["seed"])
x = torch.randn(2048, 2048, device="cuda")
(x @ x).sum().item()
open("pid", "w").write(str(os.getpid()))
say(started=True)
for number in (1, 2, 3):
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
    epoch(number, 1 / number)
    END
say(final={"test_mql": 0.5, "peak_memory_bytes": torch.cuda.max_memory_allocated()})
"""


def test_a_program_that_is_ended_leaves_the_gpu(tmp_path: Path) -> None:
    text = ON_THE_GPU.replace("END", "time.sleep(60)")
    told: list[int] = []
    job = program_job(
        tmp_path,
        text,
        device=list_gpus(os.environ)[0],
        on_epoch=lambda record, _repeat: told.append(record.epoch),
        should_stop=lambda: StopReason.INTERRUPTED if told else None,
    )
    assert trained(job) is None
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_launch_trains_a_program_that_is_no_stranger_on_the_gpu(tmp_path: Path) -> None:
    write_program(tmp_path, ON_THE_GPU.replace("END", ""))
    url = f"sqlite:///{tmp_path}/tuner.db"
    words = (
        "launch --variant study.toml --task demo --gpus 0 --trials 2 --sampler random --reruns 0"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-m", "tuner", *words.split(), "--storage", url],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as launch,
        family_of(launch.pid) as ours,
    ):
        _, said = launch.communicate(timeout=280)
    assert launch.returncode == 0, said
    assert int((tmp_path / "pid").read_text()) in ours
    records = load_study("demo-program", storage=url).complete
    assert len(records) == 2
    for recorded in (each.recorded for each in records):
        assert recorded.clock == "process"
        assert not ours & strangers(recorded.contamination or "")
        assert recorded.device == list_gpus(os.environ)[0].model
        assert present(recorded.peak_memory_bytes) > 0


GOES_ON = """
import torch
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
x = torch.randn(2048, 2048, device="cuda")
open("starts", "a").write(f"{done}\\n")
say(started=True)
for number in range(done + 1, 6):
    for _ in range(20):
        y = x @ x
    torch.cuda.synchronize()
    time.sleep(0.05)
    epoch(number, 1 / number)
    open(mine + ".half", "w").write(str(number))
    os.replace(mine + ".half", mine)
    while done == 0 and number == 2: time.sleep(0.05)
say(final={"test_mql": 0.5, "epochs": 5})
"""


def test_who_goes_on_after_kill_9_has_a_clean_clock(tmp_path: Path) -> None:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    write_program(tmp_path / "program", GOES_ON)
    words = "launch --variant program/study.toml --task demo --gpus 0 --trials 1 --reruns 0"
    process = bench.start_afresh(*words.split())
    stored = tmp_path / "storage"
    try:
        with family_of(process.pid) as ours:
            wait_for(
                lambda: [
                    each for each in stored.rglob("checkpoint/epoch") if each.read_text() == "2"
                ],
                "a checkpoint of the second epoch",
            )
            wait_for(lambda: list(stored.rglob("notes.json")), "notes of the device")
            (worker,) = workers_of(process.pid)
            worker.kill()
            assert process.wait(240) == 0
    finally:
        kill([*workers_of(process.pid), process])
    (record,) = load_study("demo-program", storage=bench.url).complete
    recorded = record.recorded
    assert (recorded.epochs, recorded.resumed_from_epoch) == (5, 2)
    assert worker.pid in ours
    assert not ours & strangers(recorded.contamination or "")
    assert (tmp_path / "program" / "starts").read_text().split() == ["0", "2"]  # and not again
