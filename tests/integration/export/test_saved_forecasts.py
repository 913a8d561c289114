"""What leaves is one forecast, whichever form it takes: its quantiles never cross, and each form
says what `SavedModel.predict` says of the same weights."""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

from tests.support.recorded_studies import RecordedDatabase
from tests.support.small_models import HYPERPARAMETERS, save_untrained, table, task_of
from tuner import load_model
from tuner.config import Architecture, TrainingSettings
from tuner.data.demo import demo_series
from tuner.data.inference import Scaling
from tuner.data.prepare import prepare
from tuner.data.task import demo_task
from tuner.errors import UsageError
from tuner.export import BestConfig, load_best, render
from tuner.export.saved_model import SavedModel, describe, save_model
from tuner.training.rearrangement import crosses

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


@pytest.fixture(scope="module")
def demo(
    recorded_database: RecordedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> tuple[BestConfig, SavedModel]:
    """A configuration for the demo's task, and a model of it that nobody trained."""
    best = load_best("rmsnorm", pick="knee", task="demo", storage=recorded_database.url)
    definition = dataclasses.replace(best.definition, training=TrainingSettings(max_epochs=1))
    params = best.params | {"hidden_size": 8, "dropout": 0.1}
    best = dataclasses.replace(best, definition=definition, params=params)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("demo") / "m.safetensors"
    prepared = prepare(demo_task())
    save_model(
        path,
        best.build_model(),
        describe(prepared, best.architecture, best.hyperparameters),
    )
    return best, load_model(path)


def demo_frame() -> pd.DataFrame:
    parts = [
        pd.DataFrame(each.values, columns=list(demo_task().target_columns)).assign(
            ds=each.timestamps, series=each.name
        )
        for each in demo_series(rows=400, seed=0, n_targets=3)
    ]
    return pd.concat(parts)


def predicted(saved: SavedModel, starts: pd.DatetimeIndex) -> Floats:
    """(S, N, T, C, Q): what the model forecasts of each series from each of these times on."""
    frame = demo_frame()
    found = [saved.predict(frame, start=start).iloc[:, 3:].to_numpy() for start in starts]
    return np.stack([each.reshape(2, 6, 3, -1) for each in found], axis=1)


def script_of(config: BestConfig, form: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = ModuleType(f"exported_{form}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(render(config, form), f"{form}.py", "exec"), module.__dict__)
    return module


TEST_STARTS = pd.date_range("2024-01-01", periods=400, freq="h")[320 + 24 :: 6]
"""First hours of the test windows: 80 rows, 24 of which the first one only sees."""


def agrees(found: Floats, expected: Floats, saved: SavedModel) -> None:
    """To a millionth of each column's range; and no quantiles cross in either."""
    assert (np.diff(found) >= 0).all()
    assert (np.diff(expected) >= 0).all()
    scale = saved.scaling.scale[:, : found.shape[3]][:, None, None, :, None]
    assert np.abs((found - expected) / scale).max() < 1e-6


def test_the_python_script_forecasts_what_the_saved_model_does(
    demo: tuple[BestConfig, SavedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    best, saved = demo
    script = script_of(best, "python", monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    network = script.network(job, data.shapes).eval()
    network.load_state_dict(saved.model.state_dict())
    found = script.forecast(data, data.test, network).numpy()
    agrees(found.reshape(2, -1, 6, 3, 17), predicted(saved, TEST_STARTS[:9]), saved)


def test_the_darts_script_forecasts_what_the_saved_model_does(
    demo: tuple[BestConfig, SavedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    from darts.models.forecasting import tsmixer_model

    monkeypatch.setattr(tsmixer_model, "_TSMixerModule", tsmixer_model._TSMixerModule)
    best, saved = demo
    script = script_of(best, "darts", monkeypatch)
    job = script.Job(**script.SETTINGS)
    data = script.prepare(job.task, script.read_series(None), torch.device("cpu"))
    module = script._TSMixerModule(
        input_dim=3,
        output_dim=3,
        past_cov_dim=0,
        future_cov_dim=4,
        static_cov_dim=1,
        nr_params=17,
        hidden_size=8,
        ff_size=8,
        num_blocks=2,
        activation="ReLU",
        dropout=0.1,
        norm_type="LayerNorm",
        normalize_before=False,
        input_chunk_length=24,
        output_chunk_length=6,
        train_sample_shape=((24, 3), None, (24, 4), (6, 4), (1, 1), (6, 3)),
    )
    module.network.load_state_dict(saved.model.state_dict())
    found = script.darts_forecasts(data, SimpleNamespace(model=module)).numpy()
    agrees(found.reshape(2, -1, 6, 3, 17), predicted(saved, TEST_STARTS[:9]), saved)


@pytest.mark.parametrize("form", ["python", "darts"])
def test_a_script_writes_its_test_forecasts_and_replaces_nothing(
    form: str,
    demo: tuple[BestConfig, SavedModel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from darts.models.forecasting import tsmixer_model

    monkeypatch.setattr(tsmixer_model, "_TSMixerModule", tsmixer_model._TSMixerModule)
    best, _ = demo
    script = script_of(best, form, monkeypatch)
    path = tmp_path / "test.csv"
    monkeypatch.setattr(sys, "argv", ["best.py", "--forecasts", str(path)])
    job = script.Job(**script.SETTINGS | {"batch_size": 512})

    def run() -> None:
        if form == "python":
            script.run(job, script.read_series, script.network)
        else:
            script.run_darts(job, script.read_series, script.make)

    run()
    assert f"wrote {path}" in capsys.readouterr().out
    found = pd.read_csv(path, parse_dates=["time"])
    assert list(found.columns[:4]) == ["seed", "series", "time", "column"]
    assert len(found) == 2 * 9 * 6 * 3
    assert (np.diff(found.iloc[:, 4:].to_numpy()) >= 0).all()
    assert found["time"].iloc[0] == TEST_STARTS[0]
    assert set(found["series"]) == {"demo1", "demo2"}
    with pytest.raises(SystemExit, match="is there already; name another file"):
        run()


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
