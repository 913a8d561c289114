"""A trial that breaks on a GPU ends with its reason; a lost context costs no other trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broken_trainings import check_all, launch_all
from tests.support.present import present

pytestmark = pytest.mark.slow


def test_an_assertion_on_the_device_running_out_of_memory_and_nan_end_one_trial_each(
    tmp_path: Path,
) -> None:
    launched = launch_all(tmp_path, ("--gpus", "0"), "cuda")
    check_all(launched)
    index, memory, nan = (launched[kind] for kind in ("index", "memory", "nan"))
    assert "device-side assert" in present(index.broken.recorded.failure)
    assert index.workers[0] != index.workers[1]  # a fresh process went on
    assert present(memory.broken.recorded.failure).startswith("out of memory")
    for each in (index, memory, nan):
        print(each.broken.recorded.failure, each.workers, each.sound.values, each.clean)
