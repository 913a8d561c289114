"""How busy a device is while a clock runs: by a GPU that only pretends, and by this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tuner.devices import CpuCores, Gpu, watch
from tuner.devices.watch import Busy, BusyMeter

GPU = Gpu(0, "GPU-0", "none", 0)


class Nvml:
    """A driver that says how much of the last period was used; None: it does not know."""

    class NVMLError(Exception):
        pass

    def __init__(self, used: float | None) -> None:
        self.used = used
        self.reads = 0
        self.open = 0

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the name it has there
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        assert self.open
        self.reads += 1
        if self.used is None:
            raise self.NVMLError
        return SimpleNamespace(gpu=self.used)


@contextlib.contextmanager
def driver(
    used: float | None, monkeypatch: pytest.MonkeyPatch, period_s: float = 0.0
) -> Iterator[Nvml]:
    there = Nvml(used)

    @contextlib.contextmanager
    def nvml() -> Iterator[Nvml]:
        there.open += 1
        yield there
        there.open -= 1

    monkeypatch.setattr(watch, "nvml", nvml)
    monkeypatch.setattr(watch, "NVML_PERIOD_S", period_s)
    yield there
    assert there.open == 0


def wait_for_reads(there: Nvml, more: int = 3) -> None:
    wanted, until = there.reads + more, time.monotonic() + 20
    while there.reads < wanted and time.monotonic() < until:
        time.sleep(0.001)


def test_a_gpu_is_read_while_the_clock_runs_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threading.active_count()
    with driver(100, monkeypatch) as there, BusyMeter(GPU, interval_s=0.001) as meter:
        asked = there.reads
        time.sleep(0.02)
        assert there.reads == asked  # the clock stands
        meter.clock_runs(True)
        wait_for_reads(there)
        meter.clock_runs(False)
        time.sleep(0.01)
        there.used = 0
        time.sleep(0.02)
        assert meter.seen().gpu == 1.0
        meter.clock_runs(True)
        wait_for_reads(there, more=20)
        meter.clock_runs(False)
        assert 0.0 < (meter.seen().gpu or 0.0) < 1.0
    assert threading.active_count() == threads


def test_what_speaks_of_the_time_before_the_clock_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a long pause, for a checkpoint; not of the short ones between epochs."""
    with driver(100, monkeypatch, period_s=3600.0), BusyMeter(GPU, interval_s=0.001) as meter:
        meter.clock_runs(True)
        time.sleep(0.03)
        meter.clock_runs(False)
        assert meter.seen().gpu is None
    with driver(100, monkeypatch, period_s=0.04) as there, BusyMeter(GPU, interval_s=1e-3) as meter:
        monkeypatch.setattr(watch, "LONG_PAUSE_S", 3600.0)
        meter.clock_runs(True)
        for _ in range(6):
            time.sleep(0.02)
            meter.clock_runs(False)
            meter.clock_runs(True)
        wait_for_reads(there)
        meter.clock_runs(False)
        assert meter.seen().gpu == 1.0


@pytest.mark.parametrize("device", [GPU, CpuCores((0,))])
def test_where_nvml_has_no_figure_there_is_none_and_no_thread(
    device: Gpu | CpuCores, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = threading.active_count()
    with driver(None, monkeypatch), BusyMeter(device) as meter:
        assert threading.active_count() == threads
        meter.clock_runs(True)
        meter.clock_runs(False)
        assert meter.seen().gpu is None
    with BusyMeter(GPU) as meter:  # here there is no driver at all, or no such GPU
        assert threading.active_count() == threads
    assert meter.seen() == Busy()


def test_the_cores_that_this_process_keeps_busy_are_those_of_the_clock() -> None:
    with BusyMeter(CpuCores((0,))) as meter:
        began = time.process_time()
        while time.process_time() - began < 0.05:
            pass  # before the clock
        meter.clock_runs(True)
        time.sleep(0.1)
        meter.clock_runs(False)
        asleep = meter.seen().cpu
        assert asleep is not None
        assert asleep < 0.5
        meter.clock_runs(True)
        began = time.process_time()
        while time.process_time() - began < 0.1:
            pass
        meter.clock_runs(False)
        assert (meter.seen().cpu or 0.0) > asleep
