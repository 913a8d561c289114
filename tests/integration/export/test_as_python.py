"""The exported script repeats a training number for number."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.exported_scripts import loaded, of_variant, run_config
from tests.support.present import present
from tuner.api import load_data
from tuner.config import Objective, Precision
from tuner.data.prepare import prepare
from tuner.data.task import demo_task, load_task
from tuner.data.windows import DeviceData, to_device
from tuner.errors import UsageError
from tuner.export import BestConfig, render
from tuner.export.recipe import read_recipe
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import evaluate, fit

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("variant", builtin_names())
def test_the_script_repeats_a_training_of_each_variant_bit_for_bit(
    variant: str, best: BestConfig, demo: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(
        best,
        variant,
        hidden_size=32,
        batch_size=64,
        learning_rate=1e-3,
        weight_decay=1e-2,
        dropout=0.2,
    )
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    trained = script.train(job, data, script.network, job.seeds[0])
    scores = script.score(job, data, data.test, trained.model)

    ours = fit(run_config(config), demo)
    evaluation = evaluate(present(ours.model), demo)
    assert trained.val_loss == ours.best_val_loss
    assert trained.stopped_by == ours.stopped_by == "epoch_limit"
    assert scores.by_series == evaluation.test_mql
    assert scores.mean == evaluation.test_mql_mean


def test_the_script_repeats_a_training_in_half_precision(
    best: BestConfig, demo: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "rmsnorm", hidden_size=8, batch_size=256)
    training = config.training.but(max_epochs=1, precision=Precision.BF16)
    config = dataclasses.replace(
        config, definition=dataclasses.replace(config.definition, training=training)
    )
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    trained = script.train(job, data, script.network, job.seeds[0])
    assert trained.val_loss == fit(run_config(config), demo).best_val_loss


SETTINGS: dict[str, dict[str, Any]] = {
    "scaled, accumulated and seldom validated": {
        "precision": Precision.FP16,
        "accumulate": 3,
        "validate_every": 2,
        "patience": 1,
        "min_delta": 10.0,
    },
    "checkpointed": {"checkpoint_activations": True},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_the_script_repeats_a_training_with_settings_of_its_own(
    case: str, best: BestConfig, demo: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "batchnorm", hidden_size=8, batch_size=64, dropout=0.2)
    training = config.training.but(max_epochs=5, **SETTINGS[case])
    definition = dataclasses.replace(config.definition, training=training)
    config = dataclasses.replace(config, definition=definition)
    ours = fit(run_config(config), demo)
    script = loaded(config, monkeypatch)
    found: list[Any] = []
    train = script.train

    def remembered(*arguments: Any) -> Any:
        found.append(train(*arguments))
        return found[-1]

    monkeypatch.setattr(script, "train", remembered)
    monkeypatch.setattr(sys, "argv", ["best.py"])
    more = {"scale_of": "LossScale", "checkpointed": "CheckpointedNetwork"}
    given = {name: getattr(script, part) for name, part in more.items() if hasattr(script, part)}
    assert len(given) == 1, "a script has the parts that its training takes"
    assert f", {next(iter(given))}={next(iter(given.values())).__name__})" in render(
        config, "python"
    )
    script.run(script.Job(**script.SETTINGS), script.read_series, script.network, **given)
    assert found[0].val_loss == ours.best_val_loss
    assert (found[0].stopped_by, found[0].epochs) == (ours.stopped_by, ours.epochs)


def test_a_searched_number_of_batches_is_in_every_form(
    best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "rmsnorm", batch_size=64, accumulate=4)
    assert loaded(config, monkeypatch).SETTINGS["accumulate"] == 4
    path = tmp_path / "best.toml"
    path.write_text(render(config, "toml"), encoding="utf-8")
    recipe = read_recipe(path)
    assert recipe.hyperparameters.accumulate == 4
    assert "accumulate" not in recipe.hyperparameters.of_network
    assert json.loads(render(config, "json"))["params"]["accumulate"] == 4
    assert "windows_batch_size=256," in render(config, "neuralforecast")
    assert "'accumulate': 4" in render(config, "darts")


def test_what_a_form_cannot_carry_is_refused_in_one_line(best: BestConfig, tmp_path: Path) -> None:
    training = best.definition.training.but(checkpoint_activations=True)
    definition = dataclasses.replace(best.definition, training=training)
    config = dataclasses.replace(best, definition=definition)
    for form in ("neuralforecast", "darts"):
        with pytest.raises(UsageError, match=f"which {form} does not; use --format python"):
            render(config, form)
    path = tmp_path / "best.toml"
    path.write_text(render(config, "toml"), encoding="utf-8")
    assert read_recipe(path).training.checkpoint_activations


def test_the_script_builds_another_reading_and_libraries_refuse_it(
    best: BestConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "rmsnorm", hidden_size=8, norm_place="before", biases="none")
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    torch.manual_seed(1)
    theirs = script.network(job, data.shapes).state_dict()
    torch.manual_seed(1)
    ours = build_model(config.architecture, data.shapes, config.hyperparameters).state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)
    for form in ("neuralforecast", "darts"):
        with pytest.raises(UsageError, match=r"norm_place, which .* does not build; use --format"):
            render(config, form)


def test_a_trial_of_several_seeds_is_repeated_with_each_and_their_median(
    best: BestConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = of_variant(best, "rmsnorm", hidden_size=8, batch_size=256)
    config = dataclasses.replace(config, provenance=config.provenance | {"seeds": [4, 5, 6]})
    script = loaded(config, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["best.py"])
    script.run(
        script.Job(**script.SETTINGS | {"max_epochs": 1}), script.read_series, script.network
    )
    printed = capsys.readouterr().out
    each = sorted(float(mql) for mql in re.findall(r"  demo2: test MQL ([\d.]+)", printed))
    assert len(each) == 3
    assert f"median of 3 seeds, demo2: test MQL {each[1]:.6f}" in printed


def test_the_script_ends_as_the_training_does_when_it_converges(
    best: BestConfig, demo: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "rmsnorm", hidden_size=8, batch_size=256, learning_rate=3e-2)
    training = config.training.but(
        max_epochs=30, patience=2, min_delta=3e-2, learning_rate_decay=0.9
    )
    config = dataclasses.replace(
        config, definition=dataclasses.replace(config.definition, training=training)
    )
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    trained = script.train(job, data, script.network, job.seeds[0])
    ours = fit(run_config(config), demo)
    assert ours.stopped_by == "converged"
    assert (trained.stopped_by, trained.epochs, trained.best_epoch) == (
        "converged",
        ours.epochs,
        ours.best_epoch,
    )
    assert trained.val_loss == ours.best_val_loss


def test_a_scaled_objective_is_scored_as_the_trial_was(
    best: BestConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = demo_task().model_copy(update={"objective": Objective.SCALED})
    config = of_variant(best, "rmsnorm", hidden_size=8, batch_size=256, learning_rate=1e-3)
    definition = dataclasses.replace(config.definition, task=task.definition())
    script = loaded(dataclasses.replace(config, definition=definition), monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    network = script.network(job, data.shapes)
    theirs = script.score(job, data, data.test, network.eval())
    ours = evaluate(network, to_device(prepare(task), "cpu"))
    assert theirs.by_series == pytest.approx(dict(ours.test_mql), rel=1e-9)
    assert theirs.mean == pytest.approx(ours.test_mql_mean, rel=1e-9)


def test_the_script_repeats_an_epoch_of_the_reference_job(
    best: BestConfig, etth_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few hundred training windows of it: a whole epoch takes a CPU many seconds."""
    prepared = prepare(load_task("etth"), data_dir=etth_dir)
    data = load_data("etth", data_dir=etth_dir)
    few = dataclasses.replace(
        data.train, starts=data.train.starts[:256], series_index=data.train.series_index[:256]
    )
    val = dataclasses.replace(
        data.val, starts=data.val.starts[:300], series_index=data.val.series_index[:300]
    )
    config = of_variant(
        best,
        "original",
        "etth",
        prepared.data_hash,
        hidden_size=16,
        batch_size=128,
        learning_rate=1e-3,
    )
    script = loaded(config, monkeypatch)
    job = script.Job(**script.SETTINGS)
    series = script.read_series(str(etth_dir))
    assert script.data_hash(job.task, series) == prepared.data_hash
    same = script.prepare(job.task, series, torch.device("cpu"))
    for split, theirs in (
        (prepared.train, same.train),
        (prepared.val, same.val),
        (prepared.test, same.test),
    ):
        rows = np.hstack([split.targets, split.past, split.future])
        assert np.array_equal(rows, theirs.rows.numpy())
        assert np.array_equal(split.starts, theirs.starts.numpy())
        assert np.array_equal(split.series_index, theirs.series.numpy())
    same = same._replace(
        train=same.train._replace(starts=same.train.starts[:256], series=same.train.series[:256]),
        val=same.val._replace(starts=same.val.starts[:300], series=same.val.series[:300]),
    )
    trained = script.train(job, same, script.network, job.seeds[0])
    ours = fit(run_config(config), dataclasses.replace(data, train=few, val=val))
    assert trained.val_loss == ours.best_val_loss
    mql = evaluate(present(ours.model), dataclasses.replace(data, val=val)).test_mql["ETTh1"]
    assert script.score(job, same, same.test, trained.model).by_series["ETTh1"] == mql
