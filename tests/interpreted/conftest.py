"""Tests of Triton kernels on CPU tensors, in a process in which Triton interprets them.

Whether it does is settled when a kernel's module is imported, for good: hence the process of their
own that `tests/unit/training/test_in_the_interpreter.py` starts for each file here. Everywhere else
they are not collected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if INTERPRETING else ["test_*.py"]


def small_task(**changes: Any) -> Task:
    """Two series of 100 hours, two columns: 43 training windows a series."""
    values: dict[str, Any] = {
        "name": "small",
        "source": DemoSource(kind="demo", rows=100),
        "target_columns": ("a", "b"),
        "frequency": "h",
        "input_size": 12,
        "horizon": 6,
        "calendar": ("hour",),
        "static_id": True,
        "quantiles": (0.1, 0.25, 0.5, 0.75, 0.9),
        "eval_quantiles": (0.1, 0.5, 0.9),
    }
    return Task(**(values | changes))


def few_windows(task: Task) -> DeviceData:
    """Every fourth training window, 22 of both series: an interpreted kernel takes its time."""
    data = to_device(prepare(task, cache_dir=None), "cpu")
    train = replace(
        data.train,
        starts=data.train.starts[::4].clone(),
        series_index=data.train.series_index[::4].clone(),
    )
    return replace(data, train=train)


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    """Every launch of every test keeps to what it was given; new memory holds nothing useful."""
    from tests.support.fast_interpreter import fast_interpreter
    from tests.support.kernel_bounds import bounds_checked, poisoned

    with fast_interpreter(), bounds_checked(), poisoned():
        yield


@pytest.fixture(autouse=True)
def few_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches here have at most five samples: a kernel need not look for 32 splits of them, each
    turn of a loop takes its time."""
    monkeypatch.setattr("tuner.kernels.kernel_launch.MOST_SPLITS", 8)
    monkeypatch.setattr("tuner.kernels.kernel_launch.COLUMN_SAMPLES", 4)


@pytest.fixture(scope="session")
def data() -> DeviceData:
    return few_windows(small_task())


@pytest.fixture(scope="session")
def bare_data() -> DeviceData:
    """Without covariates."""
    return few_windows(small_task(calendar=(), static_id=False))


@pytest.fixture(scope="session")
def run_config() -> Callable[..., RunConfig]:
    def build(model: str = "original", **changes: Any) -> RunConfig:
        values: dict[str, Any] = {
            "learning_rate": 1e-3,
            "weight_decay": 0.0,
            "dropout": 0.0,
            "hidden_size": 16,
            "batch_size": 8,
        }
        settings = {key: value for key, value in changes.items() if key not in values}
        values |= {key: value for key, value in changes.items() if key in values}
        return RunConfig(
            architecture=Architecture(model=model),
            hyperparameters=Hyperparameters(**values),
            training=TrainingSettings(**settings),
            seed=3,
        )

    return build
