"""Every variant as a neuralforecast model: trained, asked, cross-validated, saved and loaded by
that library."""

from __future__ import annotations

import dataclasses
import logging
import runpy
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from neuralforecast import NeuralForecast
from neuralforecast.losses.pytorch import GMM, MAE, DistributionLoss, MQLoss

from tests.support.recorded_studies import RecordedDatabase
from tuner.config import Architecture, Hyperparameters, ModelShapes, Precision
from tuner.export import BestConfig, load_best, render
from tuner.export.forms import CLASSES
from tuner.integrations.neuralforecast import MODELS, TSMixerRMSNorm, TunerModel, model_class
from tuner.models.names import builtin_names
from tuner.models.registry import build_model

INPUT_SIZE, HORIZON, SERIES, DAYS = 14, 7, 3, 75
QUIET: dict[str, Any] = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
    "accelerator": "cpu",
}
EXOGENOUS = {
    "futr_exog_list": ["price"],
    "hist_exog_list": ["visitors"],
    "stat_exog_list": ["size"],
}
LEVELS = (10.0, 500.0, -40.0)


@pytest.fixture(scope="module", autouse=True)
def _quietly_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def panel() -> pd.DataFrame:
    random = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=DAYS, freq="D")
    parts = []
    for number, level in enumerate(LEVELS):
        y = level + np.sin(np.arange(DAYS) / 3 + number) + 0.1 * random.normal(size=DAYS)
        exogenous = {"price": random.normal(size=DAYS), "visitors": random.normal(size=DAYS)}
        parts.append(pd.DataFrame({"unique_id": f"s{number}", "ds": days, "y": y, **exogenous}))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def static() -> pd.DataFrame:
    return pd.DataFrame({"unique_id": [f"s{n}" for n in range(SERIES)], "size": [1.0, 2.0, 3.0]})


@pytest.fixture(scope="module")
def ahead(panel: pd.DataFrame) -> pd.DataFrame:
    days = pd.date_range(panel["ds"].max() + pd.Timedelta(days=1), periods=HORIZON, freq="D")
    return pd.concat(
        [pd.DataFrame({"unique_id": f"s{n}", "ds": days, "price": 0.5}) for n in range(SERIES)]
    )


def small(variant: str, **changes: Any) -> TunerModel:
    given = {
        "h": HORIZON,
        "input_size": INPUT_SIZE,
        "n_series": SERIES,
        "hidden_size": 8,
        "max_steps": 1,
    }
    return model_class(Architecture(model=variant))(
        **{**given, "windows_batch_size": 8, **QUIET, **changes}
    )


LOSSES = {
    "MQLoss": MQLoss,
    "StudentT": lambda: DistributionLoss("StudentT"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_variant_fits_predicts_cross_validates_saves_and_loads_with_all_kinds_of_columns(
    loss: str, panel: pd.DataFrame, static: pd.DataFrame, ahead: pd.DataFrame, tmp_path: Path
) -> None:
    model = small("rmsnorm", loss=LOSSES[loss](), **EXOGENOUS)
    nf = NeuralForecast(models=[model], freq="D")
    nf.fit(panel, static_df=static, val_size=HORIZON)
    forecast = nf.predict(futr_df=ahead)
    names = [f"TSMixerRMSNorm{name}" for name in model.loss.output_names]
    assert list(forecast.columns) == ["unique_id", "ds", *names]
    assert len(forecast) == SERIES * HORIZON
    for number, level in enumerate(LEVELS):  # each series at its own level, whatever the loss
        mine = forecast.loc[forecast["unique_id"] == f"s{number}", names[0]].to_numpy()
        assert np.abs(mine - level).max() < 8

    nf.save(str(tmp_path / "saved"))
    again = NeuralForecast.load(str(tmp_path / "saved")).predict(futr_df=ahead)
    pd.testing.assert_frame_equal(again, forecast)

    validated = nf.cross_validation(panel, static_df=static, n_windows=2, step_size=HORIZON)
    assert len(validated) == 2 * SERIES * HORIZON
    assert np.isfinite(validated[names].to_numpy()).all()


def test_another_variant_without_other_columns_fits_and_forecasts(panel: pd.DataFrame) -> None:
    model = small("original", loss=MAE())
    nf = NeuralForecast(models=[model], freq="D")
    nf.fit(panel[["unique_id", "ds", "y"]])
    assert np.isfinite(nf.predict().iloc[:, 2:].to_numpy()).all()


@pytest.mark.parametrize("variant", builtin_names())
def test_the_network_inside_is_the_variants_own(variant: str) -> None:
    model = small(variant, loss=MQLoss(quantiles=[0.1, 0.5, 0.9]), **EXOGENOUS, n_blocks=1).eval()
    shapes = ModelShapes(
        input_size=INPUT_SIZE,
        horizon=HORIZON,
        n_targets=3,
        n_past=3,
        n_future=3,
        n_static=3,
        n_quantiles=3,
    )
    hyperparameters = Hyperparameters(
        learning_rate=1, weight_decay=0, dropout=0.1, hidden_size=8, batch_size=1
    )
    ours = build_model(
        Architecture(model=variant, settings={"n_blocks": 1}), shapes, hyperparameters
    ).eval()
    ours.load_state_dict(model.network.state_dict())
    y, visitors, price = (
        torch.rand(4, INPUT_SIZE, 3),
        torch.rand(4, 1, INPUT_SIZE, 3),
        torch.rand(4, 1, 21, 3),
    )
    size = torch.rand(3, 1)
    theirs = model({"insample_y": y, "hist_exog": visitors, "futr_exog": price, "stat_exog": size})
    past = torch.cat([y, visitors[:, 0], price[:, 0, :INPUT_SIZE]], dim=-1)
    expected = ours(past, price[:, 0, INPUT_SIZE:], size.T.expand(4, -1))
    assert torch.equal(model.loss.domain_map(theirs), expected)


@pytest.mark.parametrize(
    "loss",
    [MQLoss(quantiles=[0.1, 0.5, 0.9]), DistributionLoss("StudentT"), GMM(n_components=2)],
    ids=repr,
)
def test_outputs_go_to_the_series_and_the_parameter_they_are_meant_for(loss: Any) -> None:
    model = small("rmsnorm", loss=loss)
    n_outputs = loss.outputsize_multiplier
    known = torch.arange(SERIES).unsqueeze(1) * 100.0 + torch.arange(n_outputs)  # (N, Q)
    model.network.forward = lambda past, future, static: known.expand(len(past), HORIZON, -1, -1)
    mapped = loss.domain_map(model({"insample_y": torch.rand(2, INPUT_SIZE, SERIES)}))
    if isinstance(loss, MQLoss):
        together = mapped
    elif isinstance(loss, GMM):
        together = torch.cat(list(mapped), dim=-1)
    else:
        together = torch.stack(list(mapped), dim=-1)
    assert torch.equal(together, known.expand(2, HORIZON, -1, -1))


@pytest.fixture(scope="module")
def best(recorded_database: RecordedDatabase) -> BestConfig:
    config = load_best("rmsnorm", pick="knee", task="demo", storage=recorded_database.url)
    # What a real trial also records: 422 windows in 0.5 s, best after 3 epochs.
    return dataclasses.replace(
        config, provenance=config.provenance | {"training_windows": 422, "best_epoch": 3}
    )


def test_a_configuration_becomes_a_model_set_up_to_train_like_it(best: BestConfig) -> None:
    model = best.to_neuralforecast(h=5, n_series=4, alias="tuned", **QUIET)
    params, steps = best.params, -(-422 // int(best.params["batch_size"]))
    assert isinstance(model, TSMixerRMSNorm)
    assert (repr(model), model.h, model.input_size, model.n_series) == ("tuned", 5, 24, 4)
    assert model.learning_rate == params["learning_rate"]
    assert model.windows_batch_size == params["batch_size"]
    assert model.hparams["hidden_size"] == params["hidden_size"]
    assert model.hparams["dropout"] == params["dropout"]
    assert model.optimizer is torch.optim.AdamW
    assert model.optimizer_kwargs == {"weight_decay": params["weight_decay"]}
    assert (model.max_steps, model.val_check_steps) == (3 * steps, steps)
    assert model.lr_scheduler_kwargs["gamma"] ** steps == pytest.approx(0.999)
    assert model.trainer_kwargs["gradient_clip_val"] == pytest.approx(1 / 17)
    assert model.loss.quantiles.tolist() == pytest.approx(best.definition.task["quantiles"])


def test_its_settings_of_training_come_along(best: BestConfig) -> None:
    """Accumulated batches as one larger one: a step of this library is an epoch of Lightning's."""
    training = best.definition.training.but(
        accumulate=2, validate_every=3, precision=Precision.BF16
    )
    definition = dataclasses.replace(best.definition, training=training)
    config = dataclasses.replace(best, definition=definition)
    model = config.to_neuralforecast(**QUIET)
    batch = 2 * int(best.params["batch_size"])
    steps = -(-422 // batch)
    assert model.windows_batch_size == batch
    assert (model.max_steps, model.val_check_steps) == (3 * steps, 3 * steps)
    assert model.trainer_kwargs["precision"] == "bf16-mixed"


def test_the_script_knows_every_class_by_its_name() -> None:
    assert {variant: made.__name__ for variant, made in MODELS.items()} == CLASSES


def test_another_loss_is_clipped_as_it_is(best: BestConfig) -> None:
    assert best.to_neuralforecast(loss=MAE(), **QUIET).trainer_kwargs["gradient_clip_val"] == 1.0


def test_the_exported_script_fits_and_forecasts_a_panel(
    best: BestConfig,
    panel: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    config = dataclasses.replace(
        best, provenance=best.provenance | {"training_windows": 1, "best_epoch": 1}
    )
    script = render(config, "neuralforecast")
    assert script.startswith("# rmsnorm on demo: study demo-rmsnorm, trial ")
    (tmp_path / "best.py").write_text(
        script.replace("freq='h'", "freq='D'"), encoding="utf-8"
    )  # our panel is daily
    panel[["unique_id", "ds", "y"]].assign(ds=panel["ds"].dt.strftime("%Y-%m-%d")).to_csv(
        tmp_path / "panel.csv", index=False
    )
    monkeypatch.chdir(tmp_path)  # Lightning's logs go to the current folder
    monkeypatch.setattr(sys, "argv", ["best.py", "panel.csv"])
    runpy.run_path("best.py", run_name="__main__")
    printed = capsys.readouterr().out
    assert "TSMixerRMSNorm-median" in printed
    assert printed.count("s2 2024-03-") == best.shapes.horizon


OWN = """
import torch
from torch import nn

class Flat(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, depth):
        super().__init__()
        self.shape = (shapes.horizon, shapes.n_targets, shapes.n_quantiles)
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        out = self.layer(past[..., : self.shape[1]].transpose(1, 2))
        return out.unflatten(-1, (self.shape[0], self.shape[2])).transpose(1, 2)
"""


def test_a_class_of_ones_own_that_takes_no_sizes_is_given_none(
    best: BestConfig, tmp_path: Path
) -> None:
    text = OWN.replace("hidden_size, dropout, depth", "depth")
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    architecture = Architecture(model=f"{tmp_path}/own.py:Flat", settings={"depth": 2})
    definition = dataclasses.replace(best.definition, architecture=architecture)
    params = {k: v for k, v in best.params.items() if k not in ("hidden_size", "dropout")}
    config = dataclasses.replace(best, definition=definition, params=params)
    assert type(config.to_neuralforecast(**QUIET).network).__name__ == "Flat"
    assert "    hidden_size=None,\n    dropout=None," in render(config, "neuralforecast")


def test_a_class_of_ones_own_becomes_a_model_too(panel: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    architecture = Architecture(model=f"{tmp_path}/own.py:Flat", settings={"depth": 2})
    made = model_class(architecture)
    model = made(h=HORIZON, input_size=INPUT_SIZE, n_series=SERIES, max_steps=1, **QUIET)
    nf = NeuralForecast(models=[model], freq="D")
    nf.fit(panel[["unique_id", "ds", "y"]])
    forecast = nf.predict()
    assert list(forecast.columns) == ["unique_id", "ds", "TunerFlat"]
    nf.save(str(tmp_path / "saved"))
    pd.testing.assert_frame_equal(NeuralForecast.load(str(tmp_path / "saved")).predict(), forecast)
