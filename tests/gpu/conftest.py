"""Tests of this folder need a CUDA device; elsewhere they are skipped, with that reason."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device

HERE = Path(__file__).parent
FAILURES = Path("build/gpu-failures.txt")  # a run that is cut short has told its failures


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    """Two generated series of 1,600 hours, three columns."""
    task = Task(
        name="small",
        source=DemoSource(kind="demo", rows=1600),
        target_columns=("a", "b", "c"),
        frequency="h",
        input_size=48,
        horizon=12,
        calendar=("hour", "day_of_week"),
        static_id=True,
    )
    return prepare(task, cache_dir=tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def cuda_data(small_data: PreparedData) -> DeviceData:
    """The small data on the current CUDA device."""
    return to_device(small_data, "cuda")


@pytest.fixture(scope="session")
def double_data(small_data: PreparedData) -> DeviceData:
    """The same in double precision: the reference that fp32 is compared with."""
    return to_device(small_data, "cuda", dtype=torch.float64)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A line for each failure as it occurs, written by the process that gathers the reports."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        FAILURES.parent.mkdir(exist_ok=True)
        with FAILURES.open("a") as file:
            file.write(f"{report.nodeid} ({report.when}, {report.duration:.0f} s)\n")


@pytest.fixture(autouse=True)
def share_of_the_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked `alone` have the GPU to themselves, whatever other processes test beside them.

    Whoever waits to be alone holds the turnstile, so that nobody who came later goes first.
    """
    alone = request.node.get_closest_marker("alone") is not None
    folder = Path(tempfile.gettempdir())
    names = (folder / "tuner-gpu-tests-next", folder / "tuner-gpu-tests-in")
    with names[0].open("a") as turnstile, names[1].open("a") as gpu:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(gpu, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        yield
