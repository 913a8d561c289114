"""A trial whose training breaks ends with its reason, and the next one is what it would be without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_trainings import check_all, launch_all


@pytest.fixture
def one_core() -> Iterator[None]:
    """Threads that wait for each other crawl where something else runs on their cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("one_core")
def test_an_index_out_of_range_running_out_of_memory_and_nan_end_one_trial_each(tmp_path: Path) -> None:
    launched = launch_all(tmp_path, ("--cpu", "--workers", "1"), "cpu")
    check_all(launched)
    assert "IndexError" in launched["index"].broken.attributes["failure"]
    assert len({worker for each in launched.values() for worker in each.workers}) == 1  # nothing was lost here
