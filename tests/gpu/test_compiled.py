"""The compiled engine computes what the eager one computes, in every variant, and keeps what it compiled."""

from __future__ import annotations

import pytest
import torch
from test_graph import config_of, losses

from tuner.config import Backend
from tuner.data.windows import DeviceData
from tuner.training import fit


@pytest.mark.parametrize("model", ["original", "rmsnorm"])
def test_compiled_training_follows_the_eager_one(cuda_data: DeviceData, model: str) -> None:
    eager = losses(config_of(model, Backend.EAGER), cuda_data)
    compiled = losses(config_of(model, Backend.COMPILE), cuda_data)
    assert compiled == pytest.approx(eager, rel=1e-4)


def test_a_second_training_of_the_same_sizes_compiles_nothing(cuda_data: DeviceData) -> None:
    config = config_of("original", Backend.COMPILE, dropout=0.2)
    first = fit(config, cuda_data)
    counters = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    second = fit(config, cuda_data)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counters
    assert second.setup_s < 2.0
    assert [e.val_loss for e in first.history] == [e.val_loss for e in second.history]
