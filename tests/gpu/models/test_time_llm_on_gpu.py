"""Time-LLM, whose frozen part is in bf16 on a GPU, from its first window to its forecasts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.present import present
from tests.support.tiny_tasks import tiny_task
from tuner.config import RunConfig, StopReason, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.windows import to_device
from tuner.models.time_llm import TimeLLM
from tuner.training import evaluate, fit

pytest.importorskip("transformers", reason="needs tuner[llm]")
from tests.libraries.test_time_llm import H, architecture, write_model


def test_it_trains_and_forecasts(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "gpt2")
    data = to_device(prepare(tiny_task()), "cuda")
    config = RunConfig(
        architecture=architecture(folder),
        hyperparameters=H,
        training=TrainingSettings(max_epochs=2),
    )
    result = fit(config, data)
    assert (result.stopped_by, result.epochs) == (StopReason.EPOCH_LIMIT, 2)
    model = present(result.model)
    assert isinstance(model, TimeLLM)
    assert {each.device.type for each in model.parameters()} == {"cuda"}
    assert {each.dtype for each in model.frozen.parameters()} == {torch.bfloat16}
    assert evaluate(model, data).test_mql_mean > 0
