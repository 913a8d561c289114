"""What tests of programs that are stopped have in common."""

from __future__ import annotations

import pytest

from tuner.trial.program import program_process
from tuner.worker.process import ORPHAN_GRACE_S


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits a second for each of so many that are to end."""
    assert 2 * program_process.ASKED_S < ORPHAN_GRACE_S
    monkeypatch.setattr(program_process, "ASKED_S", 0.2)
