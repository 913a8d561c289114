"""What tests of engines have in common."""

from __future__ import annotations

import pytest
import torch

from tuner.training.engines import choose as backends
from tuner.training.engines.choose import MEASURED_ON


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of the kind that `auto` was measured on, and a table of two steps."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: MEASURED_ON)
    monkeypatch.setattr(backends, "FASTER_FUSED", ((64, 1024), (128, 256)))
