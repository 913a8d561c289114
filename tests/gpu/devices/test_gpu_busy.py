"""How busy a real GPU is while a clock runs, and what asking it costs the clock."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable

import pytest
import torch

from tuner.config import (
    Architecture,
    Backend,
    EpochRecord,
    Hyperparameters,
    RunConfig,
    StopReason,
    TrainingSettings,
)
from tuner.data.windows import DeviceData
from tuner.devices import Gpu, list_gpus
from tuner.devices.gpu import nvml
from tuner.devices.watch import BusyMeter
from tuner.training import fit

LONG_S = 2.5
TRAINED_S = 1.5
"""NVML's figure is of the second before, so the first one that counts comes after it."""


@pytest.fixture
def gpu() -> Gpu:
    """The one that torch uses; where NVML has no such figure of it there is nothing to test."""
    found = list_gpus(os.environ)[torch.cuda.current_device()]
    with nvml() as library:
        assert library is not None
        try:
            library.nvmlDeviceGetUtilizationRates(library.nvmlDeviceGetHandleByUUID(found.uuid))
        except library.NVMLError as error:
            pytest.skip(f"NVML says no utilisation of this GPU: {error}")
    return found


def measured(gpu: Gpu, work: Callable[[], object]) -> float | None:
    with BusyMeter(gpu) as meter:
        meter.clock_runs(True)
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            work()
        torch.cuda.synchronize()
        meter.clock_runs(False)
        return meter.seen().gpu


def test_a_gpu_with_work_is_busy_and_one_without_is_not(gpu: Gpu) -> None:
    matrix = torch.randn(4096, 4096, device="cuda")

    def multiply() -> None:
        torch.mm(matrix, matrix)
        torch.cuda.synchronize()

    busy, idle = measured(gpu, multiply), measured(gpu, lambda: time.sleep(0.1))
    print(f"busy {busy}, idle {idle}")
    assert busy is not None
    assert idle is not None
    assert busy > 0.8
    assert idle < 0.2


def test_one_reading_takes_less_than_a_thousandth_of_the_time_between_two(gpu: Gpu) -> None:
    with nvml() as library:
        assert library is not None
        handle = library.nvmlDeviceGetHandleByUUID(gpu.uuid)
        took = []
        for _ in range(200):
            began = time.perf_counter()
            library.nvmlDeviceGetUtilizationRates(handle)
            took.append(time.perf_counter() - began)
    print(f"a reading takes {1e6 * statistics.median(took):.0f} us")
    # It waits without Python's lock: the thread that trains goes on meanwhile.
    assert statistics.median(took) < 0.005


def test_a_training_has_the_same_clock_whether_it_is_watched_or_not(
    gpu: Gpu, cuda_data: DeviceData
) -> None:
    """Pairs of trainings, interleaved: the watched one takes at most two hundredths longer. Of
    captured steps: on a virtual machine the pace of plain ones changes by a fifth within seconds.
    """

    def seconds(watched: bool) -> tuple[float, float | None]:
        config = RunConfig(
            architecture=Architecture(model="rmsnorm"),
            hyperparameters=Hyperparameters(
                learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=64, batch_size=64
            ),
            training=TrainingSettings(max_epochs=20_000, patience=100_000, backend=Backend.GRAPH),
            seed=1,
        )
        epochs: list[float] = []

        def enough(record: EpochRecord) -> StopReason | None:
            epochs.append(record.elapsed_s)
            return StopReason.INTERRUPTED if record.elapsed_s > TRAINED_S else None

        with BusyMeter(gpu) as meter:
            told = meter.clock_runs if watched else lambda _runs: None
            fit(config, cuda_data, on_epoch=enough, on_clock=told)
        steps = [after - before for before, after in itertools.pairwise(epochs)]
        return statistics.median(steps), meter.seen().gpu

    seconds(watched=True)
    pairs = [(seconds(watched=True), seconds(watched=False)) for _ in range(3)]
    ratio = statistics.median(with_[0] / without[0] for with_, without in pairs)
    print(f"ratio {ratio:.4f}, busy {pairs[-1][0][1]}")
    assert ratio < 1.02
    assert pairs[-1][0][1] is not None
    assert pairs[-1][1][1] is None
