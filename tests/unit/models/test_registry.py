"""Networks by name, import string and file, and one clear line for each way this fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tuner.config import Architecture, Hyperparameters, ModelShapes, library_class
from tuner.errors import UsageError
from tuner.models.names import network_names
from tuner.models.of_neuralforecast.library_source import model_names
from tuner.models.registry import build_model, check_name
from tuner.spec.study_file import builtin_variants, load_study_file

SHAPES = ModelShapes(
    input_size=8, horizon=3, n_targets=2, n_past=0, n_future=2, n_static=1, n_quantiles=3
)

OWN = """
import torch
from torch import nn

LIMIT = 3

class Flat(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout, depth=1):
        super().__init__()
        self.shapes, self.depth = shapes, depth
        columns = shapes.n_targets + shapes.n_past + shapes.n_future
        outputs = shapes.horizon * shapes.n_targets * shapes.n_quantiles
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(shapes.input_size * columns, hidden_size), nn.Dropout(dropout),
            nn.ReLU(), nn.Linear(hidden_size, outputs),
        )
    def forward(self, past, future, static):
        s = self.shapes
        assert future.shape[1:] == (s.horizon, s.n_future) and static.shape[1:] == (s.n_static,)
        return self.layers(past).view(-1, s.horizon, s.n_targets, s.n_quantiles)

class WrongShape(Flat):
    def forward(self, past, future, static):
        return super().forward(past, future, static)[:, :-1]

class NoTensor(Flat):
    def forward(self, past, future, static):
        return {"forecast": 1}

class FailsInForward(Flat):
    def forward(self, past, future, static):
        raise RuntimeError("sizes do\\nnot fit")

class FailsInInit(Flat):
    def __init__(self, shapes, *, hidden_size, dropout):
        raise ValueError("only odd horizons")

class CountsHours(Flat):
    def __init__(self, input_size, *, hidden_size, dropout):
        torch.zeros(input_size + 1)

class LeavesInInit(Flat):
    def __init__(self, shapes, *, hidden_size, dropout):
        raise SystemExit

class LeavesInForward(Flat):
    def forward(self, past, future, static):
        raise SystemExit(0)

class NoHiddenSize(nn.Module):
    def __init__(self, shapes, *, dropout):
        super().__init__()

class NoModule:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "broken_models.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "leaving_models.py").write_text("import sys\nsys.exit()\n")
    (tmp_path / "unreadable_models.py").write_text("class Flat(:\n")
    monkeypatch.chdir(tmp_path)
    for name in ("own_models", "broken_models", "leaving_models", "unreadable_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def _build(model: str, settings: dict[str, Any] | None = None, **changes: Any) -> nn.Module:
    hyperparameters = {
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "dropout": 0.1,
        "hidden_size": 8,
        "batch_size": 4,
    }
    return build_model(
        Architecture(model=model, settings=settings or {}),
        SHAPES,
        Hyperparameters(**{**hyperparameters, **changes}),
    )


@pytest.mark.parametrize(
    "reference", ["own_models:Flat", "own_models.py:Flat", "./own_models.py:Flat"]
)
def test_an_own_class_is_built_by_module_or_file(folder: Path, reference: str) -> None:
    model = _build(reference, {"depth": 4})
    assert type(model).__name__ == "Flat"
    assert model.depth == 4
    assert model.training
    assert model(torch.rand(5, 8, 4), torch.rand(5, 3, 2), torch.rand(5, 1)).shape == (5, 3, 2, 3)


def test_an_own_class_is_built_by_absolute_path_from_any_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert type(_build(f"{folder / 'own_models.py'}:Flat")) is type(
        _build(f"{folder / 'own_models.py'}:Flat")
    )


def test_building_an_own_class_leaves_the_import_path_as_it_was(folder: Path) -> None:
    before = list(sys.path)
    _build("own_models:Flat")
    assert sys.path == before


def test_the_trial_of_an_own_class_draws_no_random_numbers_of_the_callers(folder: Path) -> None:
    torch.manual_seed(0)
    tried = _build("own_models.py:Flat").state_dict()
    after_trial = torch.rand(3)
    torch.manual_seed(0)
    own_class = type(_build("own_models.py:Flat"))
    torch.manual_seed(0)
    plain = own_class(SHAPES, hidden_size=8, dropout=0.1).state_dict()
    assert all(torch.equal(tried[name], plain[name]) for name in plain)
    assert torch.equal(after_trial, torch.rand(3))


FAILURES = {
    "nearest names first": (
        "rmsnrm",
        {},
        (
            r"unknown variant 'rmsnrm' \(did you mean 'rmsnorm'.*\); "
            r"there are: batch"
        ),
    ),
    "module missing": ("no_such_package.models:Net", {}, "no module 'no_such_package.models'"),
    "file missing": ("nowhere/net.py:Net", {}, "nowhere/net.py: no such file"),
    "module fails": (
        "broken_models:Net",
        {},
        ("failed: broken_models.py, line .: ModuleNotFoundError: No"),
    ),
    "file fails": (
        "unreadable_models.py:Net",
        {},
        ("failed: unreadable_models.py, line 1: SyntaxError"),
    ),
    "attribute missing": (
        "own_models:Flatt",
        {},
        ("unknown class in own_models 'Flatt' .did you mean 'Flat'"),
    ),
    "no class": (
        "own_models:LIMIT",
        {},
        ("own_models:LIMIT: LIMIT is not a subclass of torch.nn.Module"),
    ),
    "no module class": (
        "own_models.py:NoModule",
        {},
        ("NoModule is not a subclass of torch.nn.Module"),
    ),
    "no name": ("own_models:", {}, "'own_models:' is no import string"),
    "setting not accepted": (
        "own_models:Flat",
        {"width": 3},
        "unexpected keyword argument 'width'",
    ),
    "hidden size not accepted": (
        "own_models:NoHiddenSize",
        {},
        ("unexpected keyword argument 'hidden_size'"),
    ),
    "constructor fails": (
        "own_models:FailsInInit",
        {},
        ("building it failed: own_models.py, line ..: ValueError"),
    ),
    "first argument is no number": (
        "own_models:CountsHours",
        {},
        ("TypeError: .*; its first argument, input_size, is given the sizes of the windows: "),
    ),
    "forward fails": (
        "own_models:FailsInForward",
        {},
        ("failed: own_models.py, line ..: RuntimeError: sizes"),
    ),
    "constructor leaves": (
        "own_models:LeavesInInit",
        {},
        ("building it failed: own_models.py, line ..: SystemExit"),
    ),
    "forward leaves": (
        "own_models:LeavesInForward",
        {},
        ("failed: own_models.py, line ..: SystemExit: 0"),
    ),
    "module leaves": (
        "leaving_models:Flat",
        {},
        ("importing leaving_models failed: leaving_models.py, line 2: SystemExit"),
    ),
    "file leaves": (
        "leaving_models.py:Flat",
        {},
        ("importing leaving_models.py failed: leaving_models.py, line 2: SystemExit"),
    ),
    "wrong shape": (
        "own_models:WrongShape",
        {},
        (
            r"= \(2, 3, 2, 3\) for a batch of 2, not \(2, 2, "
            r"2, 3\)"
        ),
    ),
    "no tensor": ("own_models:NoTensor", {}, "must return a tensor .* not dict"),
    "built-in setting unknown": (
        "original",
        {"n_block": 2},
        ("setting of variant 'original' 'n_block' .did you"),
    ),
    "built-in setting no number": (
        "original",
        {"n_blocks": "2"},
        ("n_blocks must be a whole number .*, not '2'"),
    ),
    "built-in setting too small": (
        "simple",
        {"n_blocks": 0},
        ("n_blocks must be a whole number .*, not 0"),
    ),
    "hyperparameter as setting": ("original", {"dropout": 0.1}, "'dropout' is a hyperparameter"),
}


@pytest.mark.parametrize(("model", "settings", "message"), FAILURES.values(), ids=FAILURES.keys())
def test_each_way_to_fail_is_one_clear_line(
    folder: Path, model: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _build(model, settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"hidden_size": 0}, {"dropout": 1.0}, {"dropout": -0.1}, {"dropout": float("nan")}]
)
def test_hyperparameters_no_network_can_have_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(changes))):
        _build("original", **changes)


def test_a_name_is_checked_without_importing_anything(folder: Path) -> None:
    check_name("original")
    check_name("no_such_package:Net")
    with pytest.raises(UsageError, match=r"unknown variant 'orginal' \(did you mean 'original'"):
        check_name("orginal")


def test_names_and_registry_import_no_torch() -> None:
    code = "import sys, tuner.models.names, tuner.models.registry; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_built_in_network_has_a_study_file_and_other_studies_are_of_neuralforecast() -> None:
    models = {variant: load_study_file(variant).model for variant in builtin_variants()}
    assert {name: name for name in network_names()}.items() <= models.items()
    others = set(models.values()) - set(network_names())  # readings are of networks of our own
    assert {library_class(model) for model in others} <= set(model_names())
