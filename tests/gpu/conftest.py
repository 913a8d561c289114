"""Tests of this folder need a CUDA device; elsewhere they are skipped, with that reason."""

from __future__ import annotations

import fcntl
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import torch
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device

HERE = Path(__file__).parent
FAILURES = Path("build/gpu-failures.txt")  # a run that is cut short has told its failures
TIMES = Path("build/gpu-times.txt")
CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
NAMED = frozenset(CACHES) & os.environ.keys()
ALONE = (
    "bench/test_bench.py::test_everyone_is_measured",
    "devices/test_energy.py",
    "devices/test_gpu_busy.py",
    "estimate/test_estimate_on_gpu.py::test_the_largest_batch",
    "launch/test_two_gpus.py",
    "profile/test_stages.py::test_events_and_markers",
    "profile/test_stages.py::test_the_",
    "profile/test_stages.py::test_a_whole_profile",
    "training/test_streamed.py::test_a_large_network_trains_as_fast",
    "training/test_streamed.py::test_memory_that_runs_out_falls_back",
    "training/test_out_of_memory.py::test_a_training_needs_its_memory_once",
    "training/engines/test_measured.py::test_a_step_that_can_be_captured_is",
    "training/engines/test_pool.py::test_memory_that_runs_out_beside_a_full_pool",
)
"""What measures clocks or fills the GPU's memory. torch counts the memory of a process by itself:
what asks for that alone is not among them.
"""


LONGEST_FIRST = (
    "training/test_training_settings.py::test_every_compile_mode_trains_as_the_plain_step[max",
    "bench/test_ladder.py::test_every_rung_of_a_gpu_is_measured_or_has_a_reason",
    "training/engines/test_compiled.py",
    "estimate/test_estimate_on_gpu.py::test_what_is_compiled_once",
    "training/engines/test_fused.py::test_a_warm_set_up_is_short",
    "launch/test_broken_trainings.py",
)
"""Minutes each, or most of one: begun last, one of them would keep all others waiting."""
SHARES: list[IO[str]] = []  # never closed: see below


def wants_it_alone(nodeid: str) -> bool:
    return nodeid.startswith(tuple(f"tests/gpu/{name}" for name in ALONE))


def _turn(item: pytest.Item) -> int:
    if wants_it_alone(item.nodeid):
        return len(LONGEST_FIRST) + 1
    for turn, name in enumerate(LONGEST_FIRST):
        if item.nodeid.startswith(f"tests/gpu/{name}"):
            return turn
    return len(LONGEST_FIRST)


@pytest.hookimpl(trylast=True)  # after slow files have come first
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    if not torch.cuda.is_available():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(_surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """With `-n`, what one process has compiled the others find: it is most of what they do. And
    none of them compiles on all cores at once, as inductor would.
    """
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            folder = folder.parent
            cores = len(os.sched_getaffinity(0)) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
            patch.setenv("TORCHINDUCTOR_COMPILE_THREADS", str(max(cores, 1)))
        for name in CACHES.keys() - NAMED:
            patch.setenv(name, str(folder / CACHES[name]))
        yield


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


class AloneLast(LoadScopeScheduling):
    """With `-n`, one process runs the tests that want the GPU to themselves, once the others have
    nothing left and have ended: a process that idles still holds memory and a context.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "alone" if wants_it_alone(nodeid) else nodeid


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """With `-n`, a process that has told its results would wait for the others, with its context
    and its memory on the GPU: who comes alone is to be alone.
    """
    if "PYTEST_XDIST_WORKER" in os.environ and torch.cuda.is_initialized():
        os._exit(0)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> AloneLast:
    config.option.loadscopereorder = False
    return AloneLast(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A line for each failure as it occurs, and one for each test's end and seconds: written by the
    process that gathers the reports.
    """
    if "PYTEST_XDIST_WORKER" in os.environ or not torch.cuda.is_available():
        return
    if report.when == "call":
        TIMES.parent.mkdir(exist_ok=True)
        with TIMES.open("a") as file:
            print(f"{time.time():.0f}", f"{report.duration:.1f} s", report.nodeid, file=file)
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = "" if crash is None else crash.message.partition("\n")[0]
        FAILURES.parent.mkdir(exist_ok=True)
        with FAILURES.open("a") as file:
            print(report.nodeid, report.when, f"{report.duration:.0f} s", why, file=file)


@pytest.fixture(scope="session")
def share_of_the_gpu(tmp_path_factory: pytest.TempPathFactory) -> IO[str]:
    """Held until this process ends, so that who waits to be alone is alone. One file for all: each
    process has a temporary folder of its own.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    share = (folder / "share-of-the-gpu").open("a")
    SHARES.append(share)
    return share


@pytest.fixture(autouse=True)
def turn_on_the_gpu(request: pytest.FixtureRequest, share_of_the_gpu: IO[str]) -> None:
    """Beside others, or alone."""
    alone = wants_it_alone(request.node.nodeid)
    fcntl.flock(share_of_the_gpu, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    if alone and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()
