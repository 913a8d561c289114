"""Joules of a trial, by GPUs that only pretend to count them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.support.present import present
from tests.support.tiny_tasks import tiny_task
from tests.support.trial_jobs import job_of
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu, watch
from tuner.devices.watch import BusyMeter, Watch, energy_j
from tuner.record import Recorded
from tuner.trial import run as objective
from tuner.trial.seeds_and_reruns import run_job

ONE, OTHER = Gpu(0, "GPU-0", "none", 0), Gpu(1, "GPU-1", "none", 1)
BOTH = Gpu.together([ONE, OTHER])


class Nvml:
    """A driver that knows nothing of its GPUs but their joules, and not of those it lacks here."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 0, 1, 2

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.drawn_mj = {"GPU-0": 5_000, "GPU-1": 70_000}
        self.told: list[object] = []
        """Each reading, and each word of a clock."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the name it has there
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if handle not in self.drawn_mj:
            raise self.NVMLError
        self.told.append("read")
        self.drawn_mj[handle] += 1_000
        return self.drawn_mj[handle]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def not_supported(*_: object) -> None:
            raise self.NVMLError

        return not_supported


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    there = Nvml()

    @contextlib.contextmanager
    def nvml() -> Iterator[Nvml]:
        yield there

    monkeypatch.setattr(watch, "nvml", nvml)
    return there


def test_joules_are_those_of_all_its_gpus_since_the_clock_started(driver: Nvml) -> None:
    looks = Watch(BOTH)
    assert looks.finish().energy_j is None
    looks.clock_starts()
    driver.drawn_mj["GPU-0"] += 40_000
    driver.drawn_mj["GPU-1"] += 2_500
    assert looks.finish().energy_j == pytest.approx(44.5)
    driver.drawn_mj = {"GPU-0": 0, "GPU-1": 0}  # as after its driver was loaded anew
    assert looks.finish().energy_j is None


def test_what_counts_no_joules_has_none_and_fails_nothing(driver: Nvml) -> None:
    assert energy_j(CpuCores((0,))) is None
    del driver.drawn_mj["GPU-1"]
    assert energy_j(ONE) == 6.0
    assert energy_j(BOTH) is None, "a part is no sum"
    looks = Watch(OTHER)
    looks.clock_starts()
    assert looks.finish().energy_j is None


def test_without_a_driver_there_are_none() -> None:
    assert energy_j(Gpu(0, "GPU-that-is-not-there", "none", 0)) is None


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    return to_device(prepare(tiny_task(), cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


@pytest.fixture
def trained(
    data: DeviceData, driver: Nvml, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Recorded]:
    """A trial of three epochs whose GPU is pretended, and that tells the driver of its clock."""

    class Meter(BusyMeter):
        def clock_runs(self, runs: bool) -> None:
            driver.told.append(runs)
            super().clock_runs(runs)

    monkeypatch.setattr(objective, "BusyMeter", Meter)
    monkeypatch.setattr(objective, "_memory_held", dict)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def run() -> Recorded:
        return present(run_job(job_of(device=ONE), {"0" * 64: data})).recorded

    return run


def test_a_trial_reads_them_once_before_its_clock_and_once_after_it(
    trained: Callable[[], Recorded], driver: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.trial.job.RESOLVED_S", 0.0)
    recorded = trained()
    assert (recorded.energy_j, recorded.energy_unresolved) == (1.0, None)
    first, *between, last = driver.told
    assert (first, last) == ("read", "read")
    assert between == [True, False] * (len(between) // 2)
    assert len(between) > 2, "it pauses between epochs"


def test_a_short_trial_is_unresolved_where_there_are_joules_at_all(
    trained: Callable[[], Recorded], driver: Nvml
) -> None:
    recorded = trained()
    assert (recorded.energy_j, recorded.energy_unresolved) == (None, True)
    driver.drawn_mj = {}
    recorded = trained()
    assert (recorded.energy_j, recorded.energy_unresolved) == (None, None)
