"""Tests of this folder need a CUDA device; elsewhere they are skipped, with that reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tuner.data.prepare import prepare
from tuner.data.task import DemoSource, Task
from tuner.data.windows import DeviceData, to_device

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def cuda_data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    """Two generated series of 1,600 hours, three columns, on the current CUDA device."""
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
    return to_device(prepare(task, cache_dir=tmp_path_factory.mktemp("prepared")), "cuda")
