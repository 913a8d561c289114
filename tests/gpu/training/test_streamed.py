"""Rows that stay on the host, gathered into pinned memory and copied beside the training."""

from __future__ import annotations

import dataclasses
import statistics
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.support.backend_trainings import config_of
from tests.support.fitted_results import losses_of, same_weights
from tests.support.present import present
from tuner.config import Backend
from tuner.data import windows
from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, StreamedSplit, bytes_on_device, to_device
from tuner.models.registry import build_model
from tuner.training import evaluate, fit
from tuner.training.engines.choose import make_engine


@pytest.fixture(scope="module")
def streamed(small_data: PreparedData) -> DeviceData:
    """Four times as much as is allowed."""
    return to_device(small_data.within(bytes_on_device(small_data) // 4), "cuda")


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_bits_are_those_of_rows_on_the_device(
    cuda_data: DeviceData, streamed: DeviceData, accumulate: int
) -> None:
    assert isinstance(streamed.train, StreamedSplit)
    assert streamed.train.history.device.type == "cpu"
    plain = config_of("original", Backend.EAGER, dropout=0.2, batch_size=64)
    config = dataclasses.replace(plain, training=plain.training.but(accumulate=accumulate))
    one, other = fit(config, cuda_data), fit(config, streamed)
    assert losses_of(one) == losses_of(other)
    assert same_weights(one, other)
    scores = [
        evaluate(present(each.model), data) for each, data in ((one, cuda_data), (other, streamed))
    ]
    assert scores[0] == scores[1]
    assert not [each for each in threading.enumerate() if each.name == "read ahead"]


@pytest.mark.parametrize("asked", [Backend.AUTO, Backend.GRAPH, Backend.COMPILE, Backend.TRITON])
def test_captured_and_fused_engines_give_way_and_say_why(
    streamed: DeviceData, asked: Backend
) -> None:
    result = fit(config_of("original", asked), streamed)
    assert result.backend is Backend.EAGER
    assert result.backend_fallback == streamed.streamed
    assert "data_memory allows" in streamed.streamed


def test_a_share_of_the_free_memory_decides(
    small_data: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = bytes_on_device(small_data)
    free = int(needed / windows.SHARE_OF_DEVICE)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free + 2, free + 2))
    assert to_device(small_data, "cuda").streamed == ""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (free - 2, free - 2))
    assert "the device may hold" in to_device(small_data, "cuda").streamed


def test_memory_that_runs_out_falls_back(tmp_path: Path) -> None:
    task = Task(
        name="larger",
        source=DemoSource(kind="demo", rows=400_000),
        target_columns=tuple("abcdefghijklmnop"),
        frequency="h",
        input_size=8,
        horizon=2,
    )
    prepared = prepare(task, cache_dir=tmp_path)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    small = torch.cuda.memory_reserved() + (48 << 20)
    assert bytes_on_device(prepared) > 48 << 20
    torch.cuda.set_per_process_memory_fraction(small / total)
    try:
        data = to_device(prepared, "cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "they do not fit beside what is there" in data.streamed
    assert data.train.gather(torch.arange(4, device="cuda")).past.device.type == "cuda"


def test_a_large_network_trains_as_fast(cuda_data: DeviceData, streamed: DeviceData) -> None:
    """Whole epochs in turns, where the device has enough to do."""
    config = config_of("original", Backend.EAGER, hidden_size=1024, batch_size=1024)
    epochs = []
    for data in (cuda_data, streamed):
        torch.manual_seed(0)
        model = build_model(config.architecture, data.shapes, config.hyperparameters).cuda()
        engine = make_engine(config, data, model)
        engine.warm_up()
        epochs.append(engine)
    order = torch.randperm(len(cuda_data.train), device="cuda")
    ratios = []
    for _ in range(9):
        took = []
        for engine in epochs:
            torch.cuda.synchronize()
            began = time.perf_counter()
            engine.train_epoch(order, 1e-3, lambda: None)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        ratios.append(took[0] / took[1])
    assert statistics.median(ratios) > 0.9
