"""Functions are called in processes that are forks: each would import Optuna for half a second."""

from __future__ import annotations

import subprocess

import pytest

from tests.support import forked_cli


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
