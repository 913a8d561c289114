"""The exported darts script runs: darts' own network, a variant's in its place, and a class of the
user's own."""

from __future__ import annotations

import dataclasses
import logging
import re
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from darts.models.forecasting import tsmixer_model

from tests.support.exported_scripts import loaded
from tests.support.recorded_studies import RecordedDatabase
from tuner.config import Architecture, Precision, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.export import BestConfig, load_best, render
from tuner.models.tsmixer import TSMixer
from tuner.training import evaluate


@pytest.fixture(scope="module", autouse=True)
def _quietly(one_thread: None) -> Iterator[None]:
    del one_thread  # for what it does
    theirs = tsmixer_model._TSMixerModule
    for name in ("pytorch_lightning", "darts"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    tsmixer_model._TSMixerModule = theirs


@pytest.fixture(scope="module")
def best(recorded_database: RecordedDatabase) -> BestConfig:
    return load_best("rmsnorm", pick="knee", task="demo", storage=recorded_database.url)


def of_network(best: BestConfig, model: str, settings: dict[str, Any]) -> BestConfig:
    definition = dataclasses.replace(
        best.definition,
        architecture=Architecture(model=model, settings=settings),
        training=TrainingSettings(max_epochs=2),
    )
    params = best.params | {"hidden_size": 8, "batch_size": 256, "dropout": 0.25}
    return dataclasses.replace(best, definition=definition, params=params)


NETWORKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "darts' own is the original": ("original", {"n_blocks": 1}, "_TSMixerModule"),
    "a variant drops in": ("rmsnorm", {"n_blocks": 1}, "_TSMixerModule"),
    "the user's class drops in": (
        "darts.models.forecasting.tsmixer_model:_TSMixerModule",
        {"num_blocks": 1, "norm_type": "LayerNormNoBias"},
        "_TSMixerModule",
    ),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_the_script_sets_darts_up_trains_and_scores(
    case: str,
    best: BestConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, settings, name = NETWORKS[case]
    config = of_network(best, model, settings)
    (tmp_path / "best.py").write_text(render(config, "darts"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["best.py"])
    monkeypatch.setattr(
        tsmixer_model, "_TSMixerModule", tsmixer_model._TSMixerModule
    )  # put back afterwards
    made = runpy.run_path("best.py", run_name="__main__")
    printed = capsys.readouterr().out
    scores = dict(re.findall(r"(demo\d): test MQL ([\d.]+) after 2 epochs", printed))
    assert set(scores) == {"demo1", "demo2"}
    assert all(1 < float(mql) < 40 for mql in scores.values())

    darts_model = made["make"]()
    assert darts_model.model_params["optimizer_kwargs"] == {
        "lr": config.params["learning_rate"],
        "weight_decay": config.params["weight_decay"],
    }
    assert darts_model.model_params["dropout"] == 0.25
    assert darts_model.model_params["num_blocks"] == 1
    assert darts_model.model_params.get("norm_type", "LayerNorm") == settings.get(
        "norm_type", "LayerNorm"
    )
    assert darts_model.model_params["use_reversible_instance_norm"] is (model != "rmsnorm")
    assert tsmixer_model._TSMixerModule.__name__ == name


def test_settings_of_training_reach_darts_trainer_and_it_trains(
    best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_network(best, "original", {"n_blocks": 1})
    training = config.definition.training.but(accumulate=2, validate_every=2, patience=5)
    definition = dataclasses.replace(
        config.definition, training=training.but(precision=Precision.BF16)
    )
    (tmp_path / "best.py").write_text(
        render(dataclasses.replace(config, definition=definition), "darts"), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["best.py"])
    made = runpy.run_path("best.py", run_name="__main__")
    given = made["make"]().trainer_params
    assert given["accumulate_grad_batches"] == given["check_val_every_n_epoch"] == 2
    assert given["precision"] == "bf16-mixed"
    assert given["callbacks"][0].patience == 3, "validations, where a study counts epochs"


@pytest.mark.parametrize(("every", "limit", "asked"), [(5, 2, 2), (2, 5, 2), (3, 3, 3)])
def test_darts_validates_at_least_once(
    every: int, limit: int, asked: int, best: BestConfig, tmp_path: Path
) -> None:
    config = of_network(best, "original", {"n_blocks": 1})
    training = TrainingSettings(max_epochs=limit, validate_every=every)
    definition = dataclasses.replace(config.definition, training=training)
    script = tmp_path / "best.py"
    script.write_text(render(dataclasses.replace(config, definition=definition), "darts"))
    given = runpy.run_path(str(script))["make"]().trainer_params
    assert given["check_val_every_n_epoch"] == asked


def test_the_mql_of_the_script_is_tuners_of_the_same_weights(
    best: BestConfig, demo: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_network(best, "rmsnorm", {"n_blocks": 1})
    training = config.training.but(max_epochs=1)
    definition = dataclasses.replace(config.definition, training=training)
    config = dataclasses.replace(config, definition=definition)
    script = loaded(config, monkeypatch, "darts")
    job = script.Job(**script.SETTINGS)
    (train, val, test), scales = script.parts_of(job, script.read_series([]))
    model = script.make()
    model.fit(**train.arguments(), **val.arguments("val_"))
    found = script.score(job, model, test, scales)
    ours = evaluate(model.model.network.cpu().float(), demo).test_mql
    assert found == pytest.approx(list(ours.values()), rel=1e-5)


def test_the_script_reads_files_and_says_in_a_line_what_is_wrong_with_them(
    best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_network(best, "original", {"n_blocks": 1})
    source = {"kind": "csv", "time_column": "ds", "id_column": "shop"}
    definition = dataclasses.replace(
        config.definition, task=dict(config.definition.task) | {"source": source}
    )
    dialect = {"path": "shops.csv", "separator": ";", "decimal": ",", "encoding": "utf-8"}
    config = dataclasses.replace(config, definition=definition, source=source | dialect)
    script = loaded(config, monkeypatch, "darts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["best.py"])
    times = pd.date_range("2024-01-01", periods=2, freq="h")
    head = "ds; shop;load;heat;flow"
    rows = [f"{time};{shop};1,5;2;3" for time in times for shop in ("south", "north")]
    for content, says in (
        (None, "No such file or directory: 'shops.csv'"),
        (head.replace("heat", "hat"), "shops.csv has no column heat"),
        ("\n".join([head, *rows]), "south has 2 rows; each split needs 30 of them"),
    ):
        if content is not None:
            (tmp_path / "shops.csv").write_text(content, encoding="utf-8")
        with pytest.raises(SystemExit, match=says):
            script.run_darts(script.Job(**script.SETTINGS), script.read_series, script.make)
    south, north = script.read_series([])
    assert (south.name, north.name) == ("south", "north")
    assert south.values.tolist() == [[1.5, 2, 3], [1.5, 2, 3]]
    assert south.timestamps.tolist() == times.to_pydatetime().tolist()


def test_the_variants_network_is_inside_the_class_that_drops_in(best: BestConfig) -> None:
    from tuner.config import ModelShapes
    from tuner.export.darts_training import NetworkModule
    from tuner.models.tsmixer import DESIGNS

    class Module(NetworkModule):
        @staticmethod
        def build(shapes: ModelShapes, hidden_size: int, dropout: float) -> TSMixer:
            return TSMixer(shapes, DESIGNS["rmsnorm"], hidden_size=hidden_size, dropout=dropout)

    sizes: dict[str, Any] = {
        "input_dim": 2,
        "output_dim": 2,
        "past_cov_dim": 1,
        "future_cov_dim": 3,
        "static_cov_dim": 1,
        "nr_params": 5,
        "hidden_size": 8,
        "ff_size": 8,
        "num_blocks": 2,
        "activation": "ReLU",
        "dropout": 0.0,
    }
    module = Module(
        **sizes,
        norm_type="LayerNorm",
        normalize_before=False,
        input_chunk_length=12,
        output_chunk_length=4,
        train_sample_shape=((12, 2), (12, 1), (12, 3), (4, 3), (1, 1), (4, 2)),
    ).eval()
    from darts.utils.data.torch_datasets.utils import PLModuleInput

    past, future, static = torch.rand(3, 12, 6), torch.rand(3, 4, 3), torch.rand(3, 1)
    x_in = PLModuleInput(
        past_target=past[..., :2],
        past_covariates=past[..., 2:3],
        historic_future_covariates=past[..., 3:],
        future_covariates=future,
        static_covariates=static.unsqueeze(1),
    )
    assert torch.equal(module(x_in).prediction, module.network(past, future, static))
