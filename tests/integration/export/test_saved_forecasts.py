"""What leaves is one forecast, whichever form it takes: its quantiles never cross, and each form
says what `SavedModel.predict` says of the same weights."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support.small_models import HYPERPARAMETERS, save_untrained, table, task_of
from tuner import load_model
from tuner.config import Architecture
from tuner.data.recent_rows import Scaling
from tuner.errors import UsageError
from tuner.training.quantile_loss import crosses

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module", autouse=True)
def _quietly(one_thread: None) -> Iterator[None]:
    del one_thread  # for what it does
    for name in ("pytorch_lightning", "darts"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_ten_thousand_rows_of_an_untrained_network_do_not_cross_once_they_are_forecast(
    tmp_path: Path,
) -> None:
    columns = tuple(f"c{number}" for number in range(25))
    frame = table(columns, series=("north", "south"), rows=1200)
    save_untrained(tmp_path / "m.safetensors", frame, task_of(columns, horizon=200))
    saved = load_model(tmp_path / "m.safetensors")
    forecast = saved.predict(frame).iloc[:, 3:].to_numpy()
    assert forecast.shape == (10_000, 7)
    assert (np.diff(forecast) >= 0).all()
    past = torch.randn(2, 24, 25, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        unsorted = saved.model(past, None, None)
    assert crosses(unsorted).float().mean() > 0.5, "without sorting they cross"


def test_the_neuralforecast_model_forecasts_what_the_saved_model_does(tmp_path: Path) -> None:
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MQLoss

    from tuner.integrations.neuralforecast import model_class

    columns = ("a", "b", "c")
    frame = table(columns, series=("north",), rows=200)
    network = save_untrained(tmp_path / "m.safetensors", frame, task_of(columns))
    plain = Scaling(minimum=np.zeros((1, 3)), scale=np.ones((1, 3)))  # as neuralforecast sees them
    saved = dataclasses.replace(load_model(tmp_path / "m.safetensors"), scaling=plain)
    for given in ({"quantiles": list(saved.task.quantiles)}, {"level": [90, 80, 50]}):
        model = model_class(Architecture(model="rmsnorm"))(
            h=6,
            input_size=24,
            n_series=3,
            hidden_size=HYPERPARAMETERS.hidden_size,
            loss=MQLoss(**given),
            max_steps=1,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        panel = frame.melt(id_vars="ds", value_vars=columns, var_name="unique_id", value_name="y")
        nf = NeuralForecast(models=[model], freq="h")
        nf.fit(panel)
        nf.models[0].network.load_state_dict(network.state_dict())
        forecast = nf.predict().sort_values(["unique_id", "ds"])
        assert len(forecast) == 3 * 6
        found = forecast.iloc[:, 2:].to_numpy()
        order = np.argsort(np.asarray(model.loss.quantiles), kind="stable")
        assert (np.diff(found[:, order]) >= 0).all()
        if "level" in given:  # the network's outputs are named in another order: nothing to compare
            assert order[0] == 1, "the median comes first"
            continue
        expected = saved.predict(frame).sort_values(["column", "ds"]).iloc[:, 3:].to_numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_code_that_a_card_names_runs_once_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import pathlib, torch\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "class Own(torch.nn.Module):\n"
        "    def __init__(self, shapes, *, hidden_size, dropout):\n"
        "        super().__init__()\n"
        "        self.s = shapes\n"
        "        self.scale = torch.nn.Parameter(torch.ones(1))\n"
        "    def forward(self, past, future, static):\n"
        "        last = past[:, -1:, : self.s.n_targets, None] * self.scale\n"
        "        return last.expand(-1, self.s.horizon, -1, self.s.n_quantiles)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "m.safetensors"
    frame = table(("load",), series=("north",), rows=200)
    save_untrained(path, frame, task_of(("load",)), model=f"{own}:Own")
    (tmp_path / "ran").unlink()
    with pytest.raises(UsageError, match=r"m\.json names the network .*own\.py:Own, whose code"):
        load_model(path)
    assert not (tmp_path / "ran").exists()
    forecast = load_model(path, trust=True).predict(frame)
    np.testing.assert_allclose(forecast["0.5"], frame["load"].iloc[-1], rtol=1e-6)


def test_a_card_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is where a card lies; name .*model\.safetensors"):
        load_model(tmp_path / "model.json")
