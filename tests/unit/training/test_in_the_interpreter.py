"""Runs `tests/interpreted`, the tests of Triton kernels, in a process that interprets them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

FOLDER = REPOSITORY / "tests" / "interpreted"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_kernels_compute_is_right() -> None:
    """All in one process: seconds go into starting it."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)]
    done = subprocess.run(
        command,
        env=environment | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
