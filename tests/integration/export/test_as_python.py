"""The two files of `--format python`: a script that trains the configuration with tuner, and its
network alone, which has the weights and the forecasts of tuner's own without it."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.exported_scripts import EPOCHS, loaded, of_variant, run_config
from tests.support.present import present
from tuner.config import Architecture, Precision
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.export import BestConfig, render
from tuner.export.forms import network_of, network_path
from tuner.export.train import read_recipe
from tuner.models.names import builtin_names
from tuner.training import evaluate, fit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

OWN = """
from torch import nn

class Flat(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, depth):
        super().__init__()
        self.shapes, self.depth = shapes, depth
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        out = self.layer(past[..., : s.n_targets].transpose(1, 2))
        return out.unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
"""

WITHOUT_TUNER = """
import runpy, sys, torch

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tuner", "numpy", "pandas", "optuna"):
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Nowhere())
torch.set_num_threads(1)
for case in sys.argv[1:]:
    told = torch.load(f"{case}.pt")
    network = runpy.run_path(f"{case}.py")["build_network"]()
    assert list(network.state_dict()) == list(told["weights"]), case
    network.load_state_dict(told["weights"])
    network.train()
    network(*told["windows"]).sum().backward()
    network.load_state_dict(told["weights"])
    with torch.no_grad():
        assert torch.equal(network.eval()(*told["windows"]), told["forecast"]), case
assert "tuner" not in sys.modules
"""


def test_the_network_alone_is_tuners_to_the_bit_where_there_is_no_tuner(
    best: BestConfig, demo: DeviceData, tmp_path: Path
) -> None:
    cases = {name: of_variant(best, name, hidden_size=32) for name in builtin_names()}
    readings = {"norm_place": "before", "biases": "none", "norm_weights": "feature"}
    cases["reading"] = of_variant(best, "rmsnorm", hidden_size=8, **readings)
    (tmp_path / "flat.py").write_text(OWN, encoding="utf-8")
    own = Architecture(model=f"{tmp_path}/flat.py:Flat", settings={"depth": 2})
    definition = dataclasses.replace(best.definition, architecture=own)
    cases["own"] = dataclasses.replace(best, definition=definition)
    batch = demo.val.gather(torch.arange(40))
    for case, config in cases.items():
        network = config.build_model()
        weights = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        windows = (batch.past, batch.future, batch.static)
        with torch.no_grad():
            forecast = network.eval()(*windows)
        told = {"weights": weights, "windows": windows, "forecast": forecast}
        torch.save(told, tmp_path / f"{case}.pt")
        (tmp_path / f"{case}.py").write_text(network_of(config), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_TUNER, *cases],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variant", builtin_names())
def test_the_network_alone_imports_nothing_but_torch(best: BestConfig, variant: str) -> None:
    roots = set()
    for node in ast.walk(ast.parse(network_of(of_variant(best, variant)))):
        if isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
    assert roots - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.parametrize("variant", builtin_names())
def test_the_script_is_short_and_has_the_configuration_of_the_trial(
    variant: str, best: BestConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, variant, hidden_size=32, dropout=0.2)
    assert len(render(config, "python").splitlines()) <= 60
    script = loaded(config, monkeypatch)
    assert dataclasses.replace(run_config(config), seed=0) == script.CONFIG
    assert config.provenance["seeds"] == script.SEEDS


SETTINGS: dict[str, Any] = {
    "precision": Precision.FP16,
    "accumulate": 3,
    "validate_every": 2,
    "checkpoint_activations": True,
}


def test_settings_and_readings_of_a_study_are_in_the_script(
    best: BestConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "batchnorm", norm_place="before", input_size=12)
    training = config.training.but(**SETTINGS)
    definition = dataclasses.replace(config.definition, training=training)
    config = dataclasses.replace(config, definition=definition)
    told = dataclasses.replace(run_config(config), architecture=definition.architecture, seed=0)
    assert told == loaded(config, monkeypatch).CONFIG
    assert "input_size=12," in network_of(config)


def test_the_script_trains_every_seed_and_says_their_mql(
    best: BestConfig,
    demo: DeviceData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = of_variant(best, "rmsnorm", hidden_size=8, batch_size=256)
    config = dataclasses.replace(config, provenance=config.provenance | {"seeds": [4, 5]})
    script = loaded(config, monkeypatch)
    script.train(demo)
    printed = capsys.readouterr().out
    assert "WARNING" not in printed
    assert printed.startswith(f"seed 4: epoch_limit after {EPOCHS} epochs, ")
    each = [float(mql) for mql in re.findall(r"  demo2: test MQL ([\d.]+)", printed)]
    ours = fit(dataclasses.replace(run_config(config), seed=4), demo)
    scores = evaluate(present(ours.model), demo)
    assert each[0] == pytest.approx(scores.test_mql["demo2"], abs=1e-6)
    assert f"validation loss {ours.best_val_loss:.6f}" in printed
    assert printed.splitlines()[-1].endswith(", median of 2 seed(s)")

    monkeypatch.setattr(script, "SEEDS", [4])
    script.train(dataclasses.replace(demo, data_hash="another"))
    assert capsys.readouterr().out.startswith("WARNING: this is not the data")
    (tmp_path / "best.py").write_text(render(config, "python"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["best.py", "--device", "cuda:99"])
    with pytest.raises(SystemExit, match=r"^device 'cuda:99': torch .*$"):
        runpy.run_path(str(tmp_path / "best.py"), run_name="__main__")


def test_a_task_of_ones_own_is_named_to_the_script(best: BestConfig) -> None:
    config = dataclasses.replace(best, task="shops")
    text = render(config, "python")
    assert "Run:  python THIS_FILE --task TASK.toml [--device cuda]" in text
    assert '"--task", required=True' in text


def test_the_network_goes_beside_the_script() -> None:
    assert network_path(Path("a/best.py")) == Path("a/best_network.py")
    with pytest.raises(UsageError, match=r"best: expected a file name that ends in \.py"):
        network_path(Path("best"))


def test_a_searched_number_of_batches_is_in_every_form(
    best: BestConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_variant(best, "rmsnorm", batch_size=64, accumulate=4)
    assert loaded(config, monkeypatch).CONFIG.accumulate == 4
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
        with pytest.raises(UsageError, match=r"norm_place, which .* does not build; use --format"):
            render(of_variant(best, "rmsnorm", norm_place="before"), form)
    path = tmp_path / "best.toml"
    path.write_text(render(config, "toml"), encoding="utf-8")
    assert read_recipe(path).training.checkpoint_activations


def test_files_compile_whatever_the_names_are(best: BestConfig) -> None:
    for study, task in (("two\nlines", 'it\'s "quoted"'), ('"""', "\\")):
        bent = dataclasses.replace(best, study=study, task=task)
        for text in (render(bent, "python"), network_of(bent), render(bent, "darts")):
            compile(text, "best.py", "exec")
