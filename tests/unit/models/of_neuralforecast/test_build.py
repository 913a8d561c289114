"""neuralforecast's models as networks: the library's own forecast, with weights of our seed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from neuralforecast import models
from neuralforecast.losses.pytorch import MQLoss
from neuralforecast.tsdataset import TimeSeriesDataset

from tuner.config import Architecture, ModelShapes, library_class, names_own_code
from tuner.integrations.neuralforecast import QuantilesFirstMQLoss
from tuner.models.of_neuralforecast.build import Covariates, LibraryNetwork, build_of_library
from tuner.models.of_neuralforecast.library_source import QUANTILES_FIRST, model_names
from tuner.models.own import methods_not_used

SHAPES = ModelShapes(
    input_size=12, horizon=4, n_targets=3, n_past=2, n_future=2, n_static=1, n_quantiles=3
)
ALONE = replace(SHAPES, n_past=0, n_future=0, n_static=0)
SMALL: dict[str, dict[str, Any]] = {
    "TCN": {"encoder_hidden_size": 8, "decoder_hidden_size": 8, "dilations": [1, 2]},
    "NHITS": {"mlp_units": [[8, 8]] * 3},
    "PatchTST": {"hidden_size": 8, "n_heads": 2, "linear_hidden_size": 8, "patch_len": 4},
    "TSMixerx": {"ff_dim": 8},
    "iTransformer": {"hidden_size": 8, "n_heads": 2, "d_ff": 8},
    "LSTM": {"encoder_hidden_size": 8, "decoder_hidden_size": 8},
    "NLinear": {},
}


@pytest.fixture(scope="module", autouse=True)
def _on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def built(name: str, shapes: ModelShapes = SHAPES, seed: int = 0, **changes: Any) -> LibraryNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_of_library(name, shapes, SMALL.get(name, {}) | changes)
    assert isinstance(network, LibraryNetwork)
    return network


def batch(shapes: ModelShapes, windows: int = 5) -> tuple[torch.Tensor, ...]:
    """Past, future and static, each window at a level of its own."""
    generator = torch.Generator().manual_seed(1)

    def values(*size: int) -> torch.Tensor:
        return torch.rand(*size, generator=generator)

    columns = shapes.n_targets + shapes.n_past + shapes.n_future
    past = values(windows, shapes.input_size, columns) + values(windows, 1, 1)
    return past, values(windows, shapes.horizon, shapes.n_future), values(windows, shapes.n_static)


@torch.no_grad()
def forecast(network: torch.nn.Module, shapes: ModelShapes) -> torch.Tensor:
    past, future, static = batch(shapes)
    before = past.clone()
    found: torch.Tensor = network.eval()(
        past, future if shapes.n_future else None, static if shapes.n_static else None
    )
    assert torch.equal(past, before)
    assert found.shape == (len(past), shapes.horizon, shapes.n_targets, shapes.n_quantiles)
    return found


def of_library(name: str, network: LibraryNetwork, **arguments: Any) -> Any:
    """The library's model with the weights of ours, as its users make it."""
    loss = QuantilesFirstMQLoss if name in QUANTILES_FIRST else MQLoss
    made = getattr(models, name)(
        h=SHAPES.horizon,
        input_size=SHAPES.input_size,
        loss=loss(quantiles=[0.1, 0.5, 0.9]),
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
        scaler_type="identity",
        **SMALL[name] | arguments,
    )
    missing, unexpected = made.load_state_dict(network.model.state_dict(), strict=False)
    assert not unexpected
    assert set(missing) <= {"loss.quantiles", "valid_loss.quantiles"}
    return made.eval()


@pytest.mark.parametrize("name", ["TCN", "NHITS", "LSTM", "NLinear"])
@torch.no_grad()
def test_a_univariate_model_forecasts_what_the_library_does_for_each_target(name: str) -> None:
    network = built(name, ALONE, revin=False)
    theirs = of_library(name, network)
    past, _, _ = batch(ALONE)
    ours = forecast(network, ALONE)
    for column in range(ALONE.n_targets):
        window = past[:, :, column : column + 1]
        given = {"insample_y": window, "insample_mask": torch.ones_like(window)}
        expected = theirs(given | dict.fromkeys(("hist_exog", "futr_exog", "stat_exog")))
        torch.testing.assert_close(ours[:, :, column], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("TSMixerx", {"futr_exog_list": ["f0", "f1"], "hist_exog_list": ["x0", "x1"]}),
        ("iTransformer", {"futr_exog_list": ["f0", "f1"]}),
        ("TCN", {"futr_exog_list": ["f0", "f1"], "hist_exog_list": ["x0", "x1"]}),
        ("PatchTST", {}),
    ],
)
@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_the_forecast_is_that_of_the_librarys_own_predict(
    name: str, lists: dict[str, list[str]]
) -> None:
    """One panel: the targets are its series, each with the same covariates beside it."""
    shapes = replace(SHAPES, n_static=0)
    own_norm = name in ("TSMixerx", "iTransformer", "PatchTST")
    network = built(name, shapes, **({} if own_norm else {"revin": False}))
    series = {"n_series": 3} if network.multivariate else {}
    theirs = of_library(name, network, **lists, **series)
    past, future, _ = batch(shapes, windows=1)
    length, ahead = shapes.input_size, shapes.horizon
    frames = []
    for column in range(shapes.n_targets):
        known = np.zeros((length + ahead, 6), dtype=np.float32)
        known[:length, 0] = past[0, :, column]
        known[:length, 1:3] = past[0, :, 3:5]
        known[:, 3:5] = torch.cat((past[0, :, 5:], future[0]))
        known[:, 5] = np.arange(length + ahead) < length
        frames.append(known)
    dataset = TimeSeriesDataset(
        temporal=np.concatenate(frames),
        temporal_cols=pd.Index(["y", "x0", "x1", "f0", "f1", "available_mask"]),
        indptr=np.arange(shapes.n_targets + 1) * (length + ahead),
        y_idx=0,
    )
    theirs.set_test_size(ahead)
    predicted = theirs.predict(dataset, test_size=ahead, step_size=1)
    with torch.no_grad():
        ours = network.eval()(past, future, None)[0]  # (T, C, Q)
    expected = torch.as_tensor(predicted).reshape(shapes.n_targets, ahead, -1).transpose(0, 1)
    torch.testing.assert_close(ours, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", sorted(QUANTILES_FIRST))
@torch.no_grad()
def test_a_target_at_another_level_is_forecast_at_that_level_and_no_other_one_moves(
    name: str,
) -> None:
    """Of each class with a reversible norm, which takes the level off and puts it back."""
    network = built(name, ALONE, **({"patch_len": 4} if name == "TimeXer" else {})).eval()
    past, _, _ = batch(ALONE)
    for column in range(ALONE.n_targets):
        higher = past.clone()
        higher[:, :, column] += 2.0
        moved = network(higher) - network(past)
        expected = torch.zeros_like(moved)
        expected[:, :, column] = 2.0
        torch.testing.assert_close(moved, expected, atol=1e-4, rtol=0)


def test_every_multivariate_class_is_read_in_the_order_in_which_it_writes() -> None:
    """Those that are not read by quantile have a dense layer last, which learns any order."""
    networks = set(model_names()) - {"HINT"}
    multivariate = {name for name in networks if getattr(models, name).MULTIVARIATE}
    assert multivariate - QUANTILES_FIRST == {"MLPMultivariate", "TimeMixer"}


def test_static_values_reach_a_univariate_model_and_a_multivariate_one() -> None:
    for name in ("TCN", "TSMixerx"):
        network = built(name).eval()
        past, future, static = batch(SHAPES)
        with torch.no_grad():
            moved = network(past, future, static + 1) - network(past, future, static)
        assert float(moved.abs().min(dim=0).values.max()) > 0


def test_our_seed_decides_the_weights_and_nobody_elses_random_state_moves() -> None:
    python, numpy = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    environment = {name: value for name, value in os.environ.items() if name.startswith("PL_")}
    one, again, other = (
        torch.cat([p.flatten() for p in built("TCN", seed=seed).parameters()]) for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert python == random.getstate()
    assert numpy == np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    assert environment == {n: v for n, v in os.environ.items() if n.startswith("PL_")}


def test_building_says_nothing(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    built("TCN")
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []


def test_the_quantile_levels_of_the_librarys_loss_are_no_weights() -> None:
    names = [name for name, _ in built("TCN").named_parameters()]
    assert not [name for name in names if "quantiles" in name]


def test_a_class_without_a_norm_gets_ours_and_one_with_a_norm_keeps_its_own() -> None:
    level = 100.0
    for name, with_norm in (("TCN", True), ("PatchTST", True), ("TCN", False)):
        network = built(name, ALONE, **({} if with_norm else {"revin": False})).eval()
        past, _, _ = batch(ALONE)
        with torch.no_grad():
            moved = network(past + level, None, None) - network(past, None, None)
        assert bool((moved - level).abs().max() < 0.05) is with_norm
    assert built("PatchTST").norm is None


def test_a_list_can_be_given_as_text() -> None:
    given, said = built("TCN", dilations=[1, 2, 4]), built("TCN", dilations="[1, 2, 4]")
    assert torch.equal(forecast(given, SHAPES), forecast(said, SHAPES))


def test_covariates_that_a_class_does_not_take_are_said_to_be_left_out() -> None:
    found = Covariates.of(models.PatchTST, SHAPES)
    assert found.notice("neuralforecast:PatchTST") == (
        "neuralforecast:PatchTST does not take the task's 2 past, 2 future and 1 static "
        "covariates: they are left out"
    )
    assert Covariates.of(models.iTransformer, SHAPES).left_out == ("2 past", "1 static")
    assert Covariates.of(models.TSMixerx, SHAPES).notice("neuralforecast:TSMixerx") == ""


def test_a_model_of_the_library_is_no_code_of_the_users_own() -> None:
    assert library_class("neuralforecast:TCN") == "TCN"
    assert not names_own_code("neuralforecast:TCN")
    assert names_own_code("neuralforecast.models:TCN")
    assert methods_not_used(Architecture(model="neuralforecast:TCN")) == ()
