"""A trial whose training breaks ends with its reason, and the next one is what it would be without
it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import forked_cli
from tests.support.broken_trainings import check_all, launch_all
from tests.support.present import present


@pytest.mark.usefixtures("one_core")
def test_a_network_that_raises_ends_its_trial_and_the_next_is_what_it_would_be_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kind of three: the others end in the process, as tests of the training show; on CUDA all
    three are run, in processes of their own."""
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
    launched = launch_all(tmp_path, ("--cpu", "--workers", "1"), "cpu", kinds=("index",))
    check_all(launched)
    assert set((tmp_path / "seen").read_text().splitlines()) == {"[]"}, "no secret of the database"
    index = launched["index"]
    assert "IndexError" in present(index.broken.recorded.failure)
    assert index.workers[0] == index.workers[1]  # nothing was lost here
