"""A TCN with physics in its loss on many files, from the study file to a script that trains the
same; its code on hosts that lack it.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.exported_scripts import loaded
from tests.support.forked_cli import Done, run
from tests.support.present import present
from tests.support.simulated_runs import PHYSICS, small_runs, small_study
from tuner import RunConfig, evaluate, fit, load_data, load_model
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.export import BestConfig, load_best, render
from tuner.export.train import read_recipe
from tuner.models.own import load_class
from tuner.training.own_term import tried_term

TASK = "data/oscillator.toml"
STUDY = ("--study", "physics", "--task", TASK)
TRIALS = 2


def tuner(*arguments: str, folder: Path) -> Done:
    environment = {"TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return run(*arguments, folder=folder, environment=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of three trials, whose code lies beside its file."""
    folder = tmp_path_factory.mktemp("physics")
    small_runs(folder / "data")
    small_study(folder)
    done = tuner(
        *("launch", "--variant", "small-physics.toml", *STUDY, "--cpu"),
        *("--trials", str(TRIALS), "--sampler", "random"),
        folder=folder,
    )
    assert done.code == 0, done.err
    assert "oscillator.py:Motion" in done.err, "it says whose code runs"
    return folder


@pytest.fixture(scope="module")
def best(folder: Path) -> BestConfig:
    """The default, whose weight is 0.5."""
    storage = f"sqlite:///{folder}/storage/tuner.db"
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        return load_best(study="physics", trial=0, task=TASK, storage=storage)


@pytest.fixture(scope="module")
def data(folder: Path) -> Iterator[DeviceData]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_data(str(folder / TASK))
    torch.set_num_threads(threads)


def config_of(best: BestConfig, **own: float) -> RunConfig:
    hyperparameters = best.hyperparameters
    changed = dataclasses.replace(hyperparameters, own={**hyperparameters.own, **own})
    return RunConfig(
        architecture=best.definition.architecture,
        hyperparameters=changed,
        training=best.training,
        seed=best.provenance["seeds"][0],
    )


def test_the_weight_is_searched_and_recorded(folder: Path, best: BestConfig) -> None:
    assert best.params["lambda_physics"] == 0.5
    done = tuner("study", "export", "physics", "--output", "study.json.gz", folder=folder)
    assert done.code == 0, done.err
    weights = set()
    for number in range(TRIALS):
        found = tuner(*("best", *STUDY, "--trial", str(number), "--format", "json"), folder=folder)
        document = found.json()
        weights.add(document["params"]["lambda_physics"])
        assert document["training"]["loss"] == {
            "term": f"{PHYSICS}/oscillator.py:Motion",
            "weight": "lambda_physics",
        }
    assert len(weights) > 1
    assert all(0 <= weight <= 5 for weight in weights)


def test_the_residual_falls_as_the_weight_rises(best: BestConfig, data: DeviceData) -> None:
    """Of forecasts of files that nothing was trained on: the term is the data's own physics."""
    found = {}
    for weight in (0.0, 0.5):
        plain = config_of(best, lambda_physics=weight)
        result = fit(
            dataclasses.replace(
                plain,
                architecture=plain.architecture.but(settings={"levels": 2}),
                hyperparameters=dataclasses.replace(
                    plain.hyperparameters, learning_rate=5e-3, batch_size=64, hidden_size=16
                ),
                training=plain.training.but(max_epochs=40, patience=40),
            ),
            data,
        )
        term = tried_term(present(best.training.loss).term, 1.0, data, torch.float32)
        batch = data.val.gather(torch.arange(len(data.val)), with_series=True)
        with torch.no_grad():
            forecast = present(result.model)(batch.past, batch.future, batch.static)
            found[weight] = float(term.value(forecast, batch))
    assert found[0.5] < 0.6 * found[0.0]


def test_weight_0_is_the_study_without_a_term_bit_for_bit(
    best: BestConfig, data: DeviceData
) -> None:
    weightless = fit(config_of(best, lambda_physics=0.0), data)
    plain = config_of(best)
    own = {name: value for name, value in plain.hyperparameters.own.items() if "lambda" not in name}
    alone = dataclasses.replace(
        plain,
        training=plain.training.but(loss=None),
        hyperparameters=dataclasses.replace(plain.hyperparameters, own=own, loss_weight=None),
    )
    assert weightless.history[-1].train_loss == fit(alone, data).history[-1].train_loss
    assert weightless.history[-1].train_loss != fit(plain, data).history[-1].train_loss


def test_the_script_trains_the_same_bits_on_the_same_files(
    best: BestConfig,
    data: DeviceData,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = fit(config_of(best), data)
    scores = evaluate(present(ours.model), data)
    monkeypatch.chdir(folder)
    loaded(best, monkeypatch).train(data)
    said = capsys.readouterr().out
    assert "WARNING" not in said, "it found the data of the study"
    assert f"validation loss {ours.best_val_loss:.6f}" in said
    assert f"test MQL {scores.test_mql_mean:.6f}" in said
    assert "LossTerm(term=" in render(best, "python")


@pytest.mark.parametrize("form", ["darts", "neuralforecast"])
def test_libraries_cannot_train_with_it_and_one_line_says_so(best: BestConfig, form: str) -> None:
    with pytest.raises(UsageError, match=f"{form} does not train with; use --format python"):
        render(best, form)
    weightless = dataclasses.replace(best, params={**best.params, "lambda_physics": 0.0})
    if form == "darts":
        with pytest.raises(UsageError, match=r"does not know 'runs' under \[source\] of a task"):
            render(weightless, form)
    else:
        assert "Motion" not in render(weightless, form).replace("oscillator.py:Motion", "")


def test_a_configuration_in_a_file_trains_with_its_term(
    folder: Path, best: BestConfig, tmp_path: Path
) -> None:
    path = tmp_path / "best.toml"
    path.write_text(render(best, "toml"), encoding="utf-8")
    recipe = read_recipe(path)
    assert recipe.training.loss == best.training.loss
    assert recipe.hyperparameters.loss_weight == "lambda_physics"
    done = tuner(
        *("train", "--config", str(path), "--task", TASK, "--cpu", "--output", "m.safetensors"),
        folder=folder,
    )
    assert done.code == 0, done.err
    assert "this runs the code of" in done.err
    assert "oscillator.py:Motion" in done.err
    card = json.loads((folder / "m.json").read_text())
    assert card["training"]["loss"]["weight"] == "lambda_physics"
    model = load_model(folder / "m.safetensors", trust=True)
    assert type(model.model).__name__ == "TCN"
    assert load_class(best.architecture.model).__name__ == "TCN"
    frame = __import__("pandas").read_csv(folder / "data/data_simulation_003/series.csv")
    forecast = model.predict(frame, start=frame["time"].iloc[-6])
    assert len(forecast) == 6 * 2


def test_an_imported_study_runs_its_term_only_once_it_is_trusted(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "study.json.gz", tmp_path)
    where = ("--storage", f"sqlite:///{tmp_path}/other.db")
    assert tuner("study", "import", "study.json.gz", *where, folder=tmp_path).code == 0
    shown = tuner("study", "code", "physics", *where, folder=tmp_path)
    assert "class TCN" in shown.out
    assert "class Motion" in shown.out
    document = tuner("study", "code", "physics", *where, "--json", folder=tmp_path).json()
    assert [
        document["file"].rpartition("/")[2],
        document["more"][0]["file"].rpartition("/")[2],
    ] == [
        "tcn.py",
        "oscillator.py",
    ]
    worker = ("worker", "--study", "physics", "--cpu", *where)
    refused = tuner(*worker, "--task", str(folder / TASK), folder=tmp_path)
    assert refused.code == 2
    assert "came from study.json.gz" in refused.error
    assert "oscillator.py:Motion" in refused.error
    with pytest.raises(UsageError, match=r"oscillator\.py:Motion, whose code would run here"):
        load_best(trial=0, storage=str(tmp_path / "study.json.gz")).build_model()


def test_a_term_that_fails_in_a_trial_is_its_reason_and_the_worker_goes_on(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "data", tmp_path / "data")
    small_study(tmp_path, epochs=1)
    (tmp_path / "fails.py").write_text(
        "def fails(forecast, past, future, target):\n"
        "    if len(target) > 64:\n"
        "        raise ArithmeticError('a density below 0')\n"
        "    return forecast.mean()\n"
    )
    path = tmp_path / "small-physics.toml"
    text = path.read_text().replace(f"{PHYSICS}/oscillator.py:Motion", "fails.py:fails")
    text = text.replace(
        'low = 0.01\nhigh = 5.0\nscale = "log"\nzero = true', "low = 0.0\nhigh = 5.0"
    )
    path.write_text(text.replace("lambda_physics = 0.5", "lambda_physics = 0.0"))
    done = tuner(
        *("launch", "--variant", "small-physics.toml", *STUDY, "--cpu"),
        *("--trials", "2", "--sampler", "random"),
        folder=tmp_path,
    )
    assert "Traceback" not in done.out
    states = {}
    for number in range(2):
        shown = tuner("trial", str(number), "--json", folder=tmp_path).json()
        states[number] = json.dumps(shown)
    assert "a density below 0" not in states[0], "weight 0 does not run it"
    assert "fails.py, line 3: ArithmeticError: a density below 0" in states[1]
