"""A study's best configuration, and the data that it was found on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.exported_scripts import recorded_best
from tuner.api import load_data
from tuner.data.windows import DeviceData
from tuner.export import BestConfig


@pytest.fixture(scope="module")
def demo() -> DeviceData:
    return load_data("demo")


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory) -> BestConfig:
    return recorded_best(f"sqlite:///{tmp_path_factory.mktemp('python-export')}/tuner.db")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Two threads of a test that waits for each other cost more than they give."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
