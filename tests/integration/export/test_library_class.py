"""A model of neuralforecast that a study chose: as a script of its own, as that library's class,
and saved and read again."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from neuralforecast.models import TCN, TSMixerx
from torch import nn

from tests.support.present import present
from tests.support.recorded_studies import record_study
from tuner.api import load_data
from tuner.config import Architecture, RunConfig
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.export import BestConfig, load_best, render
from tuner.export.best_config import library_arguments
from tuner.export.forms import network_of
from tuner.export.saved_model import describe, load_model, save_model
from tuner.export.train import Recipe, Trained, save_trained, train_seeds
from tuner.models.registry import build_model
from tuner.training import fit

QUIET: dict[str, Any] = {"enable_progress_bar": False, "logger": False, "accelerator": "cpu"}


def of_study(folder: Path, model: str, own: str) -> BestConfig:
    (folder / f"{model}.toml").write_text(
        f'name = "{model}"\ncore_change = "theirs"\nmodel = "neuralforecast:{model}"\n'
        f"[defaults]\nlearning_rate = 1e-3\nbatch_size = 128\n{own}\n",
        encoding="utf-8",
    )
    url = f"sqlite:///{folder}/tuner.db"
    name = record_study(url, variant=str(folder / f"{model}.toml"), trials=1, max_epochs=1)
    found = load_best(study=name, pick="knee", storage=url)
    return replace(found, provenance=found.provenance | {"device": "Example CPU, 1 core"})


@pytest.fixture(scope="module")
def mixer(tmp_path_factory: pytest.TempPathFactory) -> BestConfig:
    own = (
        "ff_dim = 8\n[model_settings]\nn_block = 1\n"
        "[space.ff_dim]\ntype = 'choice'\nchoices = [8, 16]\n"
    )
    return of_study(tmp_path_factory.mktemp("mixer"), "TSMixerx", own)


@pytest.fixture(scope="module")
def trained(mixer: BestConfig) -> tuple[Trained, ...]:
    seed = mixer.provenance["seed"]
    found = tuple(train_seeds(Recipe.of(mixer), load_data("demo"), [seed]))
    kept = tuple(each for each in found if isinstance(each, Trained))
    assert kept == found
    return kept


def test_its_network_alone_needs_no_tuner_and_forecasts_the_same(
    mixer: BestConfig, trained: tuple[Trained, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = network_of(mixer)
    assert "import tuner" not in text
    assert "from tuner" not in text
    script: Any = ModuleType("exported_script")
    script.__file__ = "best_network.py"
    monkeypatch.setitem(sys.modules, script.__name__, script)
    exec(compile(text, "best_network.py", "exec"), script.__dict__)
    ours, theirs = present(trained[0].result.model), script.build_network().eval()
    theirs.load_state_dict(ours.state_dict())
    batch = load_data("demo").test.gather(torch.arange(9))
    with torch.no_grad():
        forecasts = [each(batch.past, batch.future, batch.static) for each in (ours, theirs)]
    assert torch.equal(*forecasts)


def test_a_saved_model_is_read_again(
    mixer: BestConfig, trained: tuple[Trained, ...], tmp_path: Path
) -> None:
    prepared = prepare(load_task("demo"))
    save_trained(tmp_path / "model.safetensors", Recipe.of(mixer), prepared, trained, "CPU", {})
    saved = load_model(tmp_path / "model.safetensors")
    model: Any = trained[0].result.model
    assert_same_weights(model, saved.model)


def test_a_model_that_holds_a_tensor_under_two_names_is_saved_too(
    mixer: BestConfig, tmp_path: Path
) -> None:
    """TCN does: each of its convolutions is a part of two modules."""
    prepared = prepare(load_task("demo"))
    architecture = Architecture(model="neuralforecast:TCN")
    hyperparameters = replace(mixer.hyperparameters, own={})
    model = build_model(architecture, prepared.shapes, hyperparameters)
    card = describe(prepared, architecture, hyperparameters)
    save_model(tmp_path / "model.safetensors", model, card)
    assert_same_weights(model, load_model(tmp_path / "model.safetensors").model)


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    held, read = one.state_dict(), other.state_dict()
    assert held.keys() == read.keys()
    assert all(torch.equal(held[name], read[name]) for name in held)


def test_in_neuralforecast_it_is_the_librarys_own_class(mixer: BestConfig) -> None:
    model = mixer.to_neuralforecast(**QUIET)
    assert type(model) is TSMixerx
    assert (model.hparams.ff_dim, model.hparams.n_block) == (mixer.params["ff_dim"], 1)
    assert (model.h, model.n_series, model.windows_batch_size) == (6, 3, 128)
    script = render(mixer, "neuralforecast")
    assert "from neuralforecast.models import TSMixerx\n" in script
    assert "model = TSMixerx(\n" in script
    assert f"    ff_dim={mixer.params['ff_dim']},\n" in script
    assert "    scaler_type='identity',\n" in script  # the class has a reversible norm of its own
    assert "# Needs neuralforecast" in script
    assert "# The network alone. Needs torch and neuralforecast." in network_of(mixer)
    assert "# Needs torch, pandas, neuralforecast, numpy and darts" in render(mixer, "darts")


def test_the_forecasts_of_its_neuralforecast_script_do_not_cross(mixer: BestConfig) -> None:
    script = ModuleType("exported_script")
    exec(compile(render(mixer, "neuralforecast"), "nf.py", "exec"), script.__dict__)
    names = ["TSMixerx-lo-90.0", "TSMixerx-median", "TSMixerx-hi-90.0"]
    rows = [["a", "2020-01-01", 3.0, 1.0, 2.0], ["b", "2020-01-01", 1.0, 2.0, 3.0]]
    crossing = pd.DataFrame(rows)
    crossing.columns = pd.Index(["unique_id", "ds", *names])
    sorted_ = script.without_crossing(crossing)
    assert sorted_[names].to_numpy().tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    assert sorted_["unique_id"].tolist() == ["a", "b"]


def test_a_univariate_class_gets_windows_of_one_series_and_the_librarys_scaling(
    tmp_path: Path,
) -> None:
    own = (
        'dilations = "[1, 2]"\n[model_settings]\nencoder_hidden_size = 8\n'
        "[space.dilations]\ntype = 'choice'\nchoices = ['[1, 2]', '[1, 3]']\n"
    )
    config = of_study(tmp_path, "TCN", own)
    given = library_arguments(config)
    assert given["dilations"] == json.loads(str(config.params["dilations"]))
    assert given["encoder_hidden_size"] == 8
    assert given["windows_batch_size"] == 128 * 3
    assert given["scaler_type"] == "standard"
    assert not given.keys() & {"n_series", "revin", "hidden_size", "dropout"}
    assert type(config.to_neuralforecast(**QUIET)) is TCN


def test_two_trainings_with_one_seed_are_the_same(
    mixer: BestConfig, trained: tuple[Trained, ...]
) -> None:
    config = RunConfig(
        architecture=mixer.architecture,
        hyperparameters=mixer.hyperparameters,
        training=mixer.training,
        seed=mixer.provenance["seed"],
    )
    assert fit(config, load_data("demo")).best_val_loss == trained[0].result.best_val_loss
