"""What people take with them works on a CUDA device too: exported scripts, saved models, modules written for darts."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.demo import demo_series
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.export import BestConfig, render
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.saved_model import describe, load_model, save_model
from tuner.study import StudyDefinition, load_study_file
from tuner.training import evaluate, fit

DARTS = "darts.models.forecasting.tsmixer_model:_TSMixerModule"


def configuration(variant: str) -> BestConfig:
    task = load_task("demo")
    definition = StudyDefinition.of(
        load_study_file(variant),
        task=task.definition(),
        data_hash=prepare(task).data_hash,
        training=TrainingSettings(max_epochs=3, backend=Backend.EAGER),
    )
    params = {"learning_rate": 1e-3, "weight_decay": 0.0, "dropout": 0.1, "hidden_size": 32, "batch_size": 128}
    provenance = {
        "seeds": [5],
        "seed": 5,
        "device": "a GPU",
        "versions": {},
        "git_revision": None,
        "converged": True,
        "contaminated": False,
    }
    provenance |= {"data_hash": definition.data_hash, "definition_hash": definition.identity()}
    return BestConfig(
        variant=variant,
        task="demo",
        study=f"demo-{variant}",
        trial=0,
        pick="knee",
        params=params,
        values={"wall_clock_s": 1.0, "test_mql": 1.0},
        verified=None,
        provenance=provenance,
        definition=definition,
    )


@pytest.mark.parametrize("variant", builtin_names())
def test_the_script_repeats_an_eager_training_on_the_device(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configuration(variant)
    script: Any = ModuleType("exported_script")
    monkeypatch.setitem(sys.modules, script.__name__, script)
    exec(compile(render(config, "python"), "best.py", "exec"), script.__dict__)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cuda"))
    trained = script.train(job, data, script.network, 5)
    scores = script.score(job, data, data.test, trained.model)
    run = RunConfig(
        architecture=config.architecture,
        hyperparameters=config.hyperparameters,
        training=config.training,
        seed=5,
    )
    ours = to_device(prepare(load_task("demo")), "cuda")
    result = fit(run, ours)
    assert trained.val_loss == pytest.approx(result.best_val_loss, rel=1e-4)
    assert result.model is not None
    assert scores.mean == pytest.approx(evaluate(result.model, ours).test_mql_mean, abs=1e-2)


def test_a_saved_model_forecasts_the_same_on_both_devices(tmp_path: Path) -> None:
    prepared = prepare(load_task("demo"))
    hyperparameters = load_study_file("rmsnorm").default_hyperparameters()
    architecture = Architecture(model="rmsnorm")
    model = build_model(architecture, prepared.shapes, hyperparameters).to("cuda")
    save_model(tmp_path / "m.safetensors", model, describe(prepared, architecture, hyperparameters))
    series = demo_series(rows=48, seed=0, n_targets=3)[0]
    frame = pd.DataFrame(series.values, columns=["load", "heat", "flow"]).assign(ds=series.timestamps, series="demo1")
    on_cpu, on_cuda = (load_model(tmp_path / "m.safetensors", device=d).predict(frame) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(on_cpu.iloc[:, 3:].to_numpy(), on_cuda.iloc[:, 3:].to_numpy(), rtol=1e-4)


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.GRAPH])
def test_a_module_written_for_darts_trains_eagerly_and_captured(backend: Backend) -> None:
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
    eager = fit(dataclasses.replace(run, training=dataclasses.replace(run.training, backend=Backend.EAGER)), data)
    assert result.best_val_loss == pytest.approx(eager.best_val_loss, rel=1e-3)
