"""What is trained once more on all rows, and what averages several forecasts: on a file whose
target is little but a column that is known ahead, of which no plain baseline knows."""

from __future__ import annotations

import dataclasses
import json
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.support.small_models import HYPERPARAMETERS, task_of
from tuner import load_model
from tuner.config import Architecture, RunConfig, TrainingSettings
from tuner.data.prepare import PreparedData, prepare
from tuner.data.windows import DeviceData, to_device
from tuner.errors import DataError
from tuner.export.saved_model import SavedModel
from tuner.export.train import (
    Kept,
    Recipe,
    Refitted,
    Trained,
    average,
    refit,
    save_trained,
    train_seeds,
)
from tuner.training import fit
from tuner.training.baselines import plain
from tuner.training.ensemble import Ensemble
from tuner.training.quantile_loss import forecast_scaled, rearranged

ROWS, INPUT, HORIZON, LEVELS = 400, 8, 2, (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Made:
    """A file, with its splits and as a whole, and one training on its first rows."""

    folder: Path
    table: pd.DataFrame
    recipe: Recipe
    prepared: tuple[PreparedData, PreparedData]
    data: tuple[DeviceData, DeviceData]
    trained: Trained

    def saved(self, *trained: Trained, **more: Any) -> SavedModel:
        path, seeds = self.folder / "m.safetensors", trained or [self.trained]
        save_trained(path, self.recipe, self.prepared[0], seeds, "", {}, **more)
        return load_model(path)

    def again(self, kept: Kept, *trained: Trained) -> Refitted:
        return refit(self.recipe, self.prepared[1], self.data[1], trained or [self.trained], kept)

    def too_high(self, seed: int, by: float) -> Trained:
        """The same training, with forecasts that are all too high, or too low."""
        model = deepcopy(self.trained.result.model)
        assert model is not None
        model.get_parameter("head.bias").data += by
        result = dataclasses.replace(self.trained.result, model=model)
        return dataclasses.replace(self.trained, seed=seed, result=result)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Made:
    del one_thread  # for what it does
    folder, rng = tmp_path_factory.mktemp("all_rows"), np.random.default_rng(0)
    x, times = rng.normal(size=ROWS), pd.date_range("2024-01-01", periods=ROWS, freq="h")
    y = x + np.where(np.arange(ROWS) < 0.9 * ROWS, 0.0, 3.0) + 0.1 * rng.normal(size=ROWS)
    table = pd.DataFrame({"ds": times, "x": x, "y": y})
    table.to_csv(folder / "t.csv", index=False)
    sizes = {"input_size": INPUT, "horizon": HORIZON, "quantiles": LEVELS}
    source = {"kind": "csv", "path": folder / "t.csv"}
    task = task_of(("y",), source=source, future_covariates=("x",), **sizes)
    recipe = Recipe(
        task=task.name,
        architecture=Architecture(model="rmsnorm"),
        hyperparameters=dataclasses.replace(HYPERPARAMETERS, learning_rate=1e-2),
        training=TrainingSettings(max_epochs=5),
        origin={},
    )
    parts = prepare(task, cache_dir=folder), prepare(task, cache_dir=folder, whole=True)
    data = to_device(parts[0], "cpu"), to_device(parts[1], "cpu")
    [trained] = train_seeds(recipe, data[0], [0], calibrated=True)
    assert isinstance(trained, Trained)
    return Made(folder, table, recipe, parts, data, trained)


def test_all_rows_are_one_split_with_a_scaling_of_their_own(made: Made) -> None:
    y, (first, whole) = made.table["y"], made.prepared
    assert whole.data_hash == first.data_hash
    assert whole.train.starts.tolist() == list(range(ROWS - INPUT - HORIZON + 1))
    assert whole.minimum.item() == y.min()
    assert whole.scale.item() == y.max() - y.min() > first.scale.item() + 1
    assert (whole.training_rows, first.training_rows) == ((400, 400), (240, 400))
    assert whole.training_ends == (first.training_ends[0], str(made.table["ds"].iloc[-1]))


def test_the_last_training_is_of_as_many_epochs_and_its_card_says_what_is_whose(made: Made) -> None:
    again, count = made.again(made.trained), made.trained.result.best_epoch
    config = RunConfig(
        architecture=made.recipe.architecture,
        hyperparameters=made.recipe.hyperparameters,
        training=TrainingSettings(max_epochs=count, patience=99, restore_best_weights=False),
        seed=0,
    )
    expected = fit(config, made.data[1]).model
    assert expected is not None
    for name, weights in expected.state_dict().items():
        assert torch.equal(weights, again.model.state_dict()[name])
    before, after = made.saved(), made.saved(refitted=again)
    assert after.card["metrics"] == before.card["metrics"], "scores are of the first training"
    assert f"seed 0 for {count} epochs; scores and shifts of intervals" in after.card["refit"]
    ends = "2024-01-01 00:00:00 to 2024-01-10 23:00:00"
    assert before.trained_on == f"the first 60 %, 240 of 400 rows, {ends}"
    assert after.trained_on.startswith("all 400 rows, 2024-01-01 00:00:00 to 2024-01-17")
    assert before.shift is not None
    assert after.factors is not None
    carried = before.shift * after.factors[0, 0] * after.scaling.scale[0, 0]
    np.testing.assert_allclose(carried, before.shift * before.scaling.scale[0, 0])


def test_an_ensemble_is_kept_where_it_beats_the_best_of_its_members(made: Made) -> None:
    """Two that are wrong by as much, in opposite directions."""
    seeds = made.too_high(0, 0.6), made.too_high(1, -0.6)
    mean = average(made.recipe, made.data[0], seeds, calibrated=True)
    assert mean.sentence.startswith("Ensemble kept: "), mean.sentence
    assert [mean.weights[f"seed {n}"] for n in (0, 1)] == pytest.approx([0.5, 0.5], abs=0.2)
    again = made.again(mean, *seeds)
    assert set(again.epochs) == {0, 1}
    saved = made.saved(*seeds, averaged=mean, refitted=again)
    assert [each["name"] for each in saved.card["members"]] == list(mean.weights)
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, saved.model.state_dict()[name])


def test_a_saved_mean_forecasts_the_mean_of_its_members_quantiles(made: Made) -> None:
    """Of the network and every baseline, alike; a card with other members is refused."""
    assert made.trained.result.model is not None
    members = {"seed 0": made.trained.result.model}
    members |= {name: make() for name, make in plain.baselines(made.data[0]).items()}
    assert {"last_value", "last_lags", "nlinear"} <= members.keys()
    weights = dict.fromkeys(members, 1 / len(members))
    model = Ensemble([*members.values()], [*weights.values()])
    mean = average(made.recipe, made.data[0], [made.trained])
    mean = dataclasses.replace(mean, weights=weights, model=model, helps=True)
    saved, data = made.saved(averaged=mean), made.data[0]
    batch = data.test.gather(torch.tensor([len(data.test) - 1]))
    first = int(data.test.starts[-1]) + 320 + INPUT
    found = saved.predict(made.table.iloc[: first + HORIZON], start=str(made.table["ds"][first]))
    seen = batch.past, batch.future, batch.static, torch.zeros(1, dtype=torch.int64)
    with torch.no_grad():
        each = [rearranged(forecast_scaled(m, *seen)).double() for m in model.members]
    expected = torch.stack(each).mean(dim=0) * data.scale + data.minimum
    values = found[[str(level) for level in LEVELS]].to_numpy()
    np.testing.assert_allclose(values, expected[0, :, 0], rtol=1e-4, atol=1e-5)
    card = made.folder / "m.json"
    kept = json.loads(card.read_text(encoding="utf-8"))
    for name, weight, said in (
        ("last_value", 0.9, "weights of members do not add up to 1"),
        ("last_value", 1.0, "last_value has no figures of a baseline"),
        ("seed 5", 1.0, "its weights do not fit"),
    ):
        member = {"name": name, "weight": weight}
        card.write_text(json.dumps({**kept, "members": [member]}), encoding="utf-8")
        with pytest.raises(DataError, match=said):
            load_model(made.folder / "m.safetensors")
