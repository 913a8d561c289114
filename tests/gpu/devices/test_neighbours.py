"""What others do on a GPU while a trial is timed: strangers spoil the time, launches wait."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.broken_trainings import NETWORK, PATIENCE_S, STUDY, TASK
from tests.support.cli_processes import family_of, strangers
from tuner.api import load_study
from tuner.devices import list_gpus
from tuner.devices.gpu import nvml
from tuner.study.results import TrialRecord

pytestmark = pytest.mark.slow
BURN = """
import torch
x = torch.randn(4096, 4096, device="cuda")
(x @ x).sum().item()
print("burning", flush=True)
while True:
    (x @ x).sum().item()
"""


def write_study(folder: Path, name: str) -> None:
    """A sound network of at most a hundred epochs."""
    (folder / "fragile.py").write_text(NETWORK)
    (folder / "tiny.toml").write_text(TASK)
    text = STUDY.format(kind="none").replace("fragile-none", name)
    text = text.replace("dropout = 0.5", "dropout = 0.1").replace(
        "max_epochs = 3", "max_epochs = 100"
    )
    (folder / f"{name}.toml").write_text(text)


def start(folder: Path, name: str, trials: int) -> subprocess.Popen[str]:
    """`tuner launch` on GPU 0, in the database of the folder."""
    options = [
        "--task",
        str(folder / "tiny.toml"),
        "--trials",
        str(trials),
        "--sampler",
        "random",
        "--reruns",
        "1",
    ]
    command = [
        sys.executable,
        "-m",
        "tuner",
        "launch",
        "--variant",
        str(folder / f"{name}.toml"),
        "--gpus",
        "0",
    ]
    return subprocess.Popen(
        [*command, *options, "--storage", f"sqlite:///{folder}/tuner.db"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> None:
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, out


def records(folder: Path, name: str) -> tuple[TrialRecord, ...]:
    return load_study(f"tiny-{name}", storage=f"sqlite:///{folder}/tuner.db").records


@contextmanager
def burner() -> Iterator[int]:
    """A process of somebody else that keeps the GPU busy."""
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "burning\n"
            yield process.pid
        finally:
            process.kill()


def on_the_gpu() -> list[int]:
    """Processes that NVML names on GPU 0."""
    (gpu, *_) = list_gpus(os.environ)
    with nvml() as library:
        assert library is not None
        handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return [process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle)]


def test_a_foreign_process_spoils_a_trials_time_which_is_run_again(tmp_path: Path) -> None:
    """A time without one is not spoilt: see below."""
    write_study(tmp_path, "watched")
    with burner() as stranger:
        if not on_the_gpu():
            pytest.skip("NVML names no processes on this machine: nobody can be seen on the GPU")
        finish(start(tmp_path, "watched", trials=1))
    (spoiled,) = records(tmp_path, "watched")
    a = spoiled.recorded.to_flat()
    print(a["contamination"], a["timings"])
    assert a["contaminated"]
    assert stranger in strangers(a["contamination"])
    # Once more, and that was no better.
    assert [timing["contaminated"] for timing in a["timings"]] == [True, True]


def test_the_timed_parts_of_two_launches_on_one_gpu_never_overlap(tmp_path: Path) -> None:
    """And neither takes the other for a stranger, whoever else may be there."""
    names = ("left", "right")
    for name in names:
        write_study(tmp_path, name)
    started = [start(tmp_path, name, trials=3) for name in names]
    with family_of(*(process.pid for process in started)) as ours:
        for process in started:
            finish(process)
    found: list[tuple[float, float, str]] = []
    for name in names:
        for record in records(tmp_path, name):
            a: dict[str, Any] = record.recorded.to_flat()
            runs = a.get("timings") or [a]
            found += [(run["timed_from"], run["timed_until"], name) for run in runs]
            assert not ours & strangers(a["contamination"] or "")
    found.sort()
    print([(name, round(until - since, 3)) for since, until, name in found])
    assert len(found) >= 6
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(found))
