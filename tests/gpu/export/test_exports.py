"""What people take with them works on a GPU: exported scripts, saved models, darts modules."""

from __future__ import annotations

import dataclasses
import statistics
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student

from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings, Value
from tuner.data.demo import demo_series
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.export import BestConfig, render
from tuner.export.saved_model import describe, load_model, save_model
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.training import evaluate, fit

DARTS = "darts.models.forecasting.tsmixer_model:_TSMixerModule"


PARAMS: dict[str, Value] = {
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "dropout": 0.1,
    "hidden_size": 32,
    "batch_size": 128,
}
SHORT = TrainingSettings(max_epochs=3, backend=Backend.EAGER)


def configuration(
    variant: str,
    *,
    task_name: str = "demo",
    data_dir: Path | None = None,
    params: dict[str, Value] = PARAMS,
    training: TrainingSettings = SHORT,
) -> BestConfig:
    task = load_task(task_name)
    definition = StudyDefinition.of(
        load_study_file(variant),
        task=task.definition(),
        data_hash=prepare(task, data_dir=data_dir).data_hash,
        training=training,
    )
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
        task=task_name,
        study=f"{task_name}-{variant}",
        trial=0,
        pick="knee",
        params=params,
        values={"wall_clock_s": 1.0, "test_mql": 1.0},
        verified=None,
        provenance=provenance,
        definition=definition,
    )


def loaded(config: BestConfig, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exported script as a module."""
    script: Any = ModuleType("exported_script")
    monkeypatch.setitem(sys.modules, script.__name__, script)
    exec(compile(render(config, "python"), "best.py", "exec"), script.__dict__)
    return script


@pytest.mark.parametrize("variant", builtin_names())
def test_the_script_repeats_an_eager_training_on_the_device(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configuration(variant)
    script = loaded(config, monkeypatch)
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


def test_the_reference_jobs_script_converges_to_what_its_trials_come_to(
    etth_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials are captured, the script is eager: other masks, so it counts as one more seed."""
    training = load_study_file("original").training
    check_converges(etth_dir, monkeypatch, "cuda", seeds=8, training=training)


def check_converges(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    *,
    seeds: int,
    training: TrainingSettings,
) -> None:
    """The script's losses lie where 99.9 % of further seeds of our own trainings would."""
    params = load_study_file("original").default_hyperparameters()
    config = configuration(
        "original",
        task_name="etth",
        data_dir=folder,
        params=dict(params.as_dict()),
        training=training,
    )
    data = to_device(prepare(load_task("etth"), data_dir=folder), device)
    run = RunConfig(
        architecture=config.architecture, hyperparameters=params, training=training, seed=0
    )
    found: dict[str, list[float]] = {"validation loss": [], "ETTh1 MQL": [], "epochs": []}
    for seed in range(seeds):
        result = fit(dataclasses.replace(run, seed=seed), data)
        assert result.model is not None
        figures = (
            result.best_val_loss,
            evaluate(result.model, data).test_mql["ETTh1"],
            float(result.epochs),
        )
        for name, value in zip(found, figures, strict=True):
            found[name].append(value)
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    theirs = script.prepare(job.task, script.read_series(str(folder)), torch.device(device))
    trained = script.train(job, theirs, script.network, seeds)
    scores = script.score(job, theirs, theirs.test, trained.model)
    last = trained.val_loss, scores.by_series["ETTh1"], float(trained.epochs)
    for (name, values), value in zip(found.items(), last, strict=True):
        reach = (
            float(student.ppf(0.9995, seeds - 1))
            * statistics.stdev(values)
            * (1 + 1 / seeds) ** 0.5
        )
        print(f"{name}: script {value:.4f}, trials {statistics.fmean(values):.4f} +- {reach:.4f}")
        assert abs(value - statistics.fmean(values)) <= reach, name


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
