"""What people take with them works on a GPU: saved models, modules written for darts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.sources import demo_series
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.export.saved_model import describe, load_model, save_model
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training import fit

DARTS = "darts.models.forecasting.tsmixer_model:_TSMixerModule"


def test_a_saved_model_forecasts_the_same_on_both_devices(tmp_path: Path) -> None:
    prepared = prepare(load_task("demo"))
    hyperparameters = load_study_file("rmsnorm").default_hyperparameters()
    architecture = Architecture(model="rmsnorm")
    model = build_model(architecture, prepared.shapes, hyperparameters).to("cuda")
    save_model(tmp_path / "m.safetensors", model, describe(prepared, architecture, hyperparameters))
    series = demo_series(rows=48, seed=0, n_targets=3)[0]
    frame = pd.DataFrame(series.values, columns=["load", "heat", "flow"]).assign(
        ds=series.timestamps, series="demo1"
    )
    on_cpu, on_cuda = (
        load_model(tmp_path / "m.safetensors", device=d).predict(frame) for d in ("cpu", "cuda")
    )
    np.testing.assert_allclose(
        on_cpu.iloc[:, 3:].to_numpy(), on_cuda.iloc[:, 3:].to_numpy(), rtol=1e-4
    )


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.GRAPH])
def test_a_module_written_for_darts_trains_eagerly_and_captured(backend: Backend) -> None:
    pytest.importorskip("darts", reason="darts is not installed")
    run = RunConfig(
        architecture=Architecture(model=DARTS),
        hyperparameters=Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.0, hidden_size=16, batch_size=128
        ),
        training=TrainingSettings(max_epochs=2, backend=backend),
    )
    data = to_device(prepare(load_task("demo")), "cuda")
    result = fit(run, data)
    assert result.epochs == 2
    eager = fit(
        dataclasses.replace(run, training=run.training.but(backend=Backend.EAGER)),
        data,
    )
    assert result.best_val_loss == pytest.approx(eager.best_val_loss, rel=1e-3)
