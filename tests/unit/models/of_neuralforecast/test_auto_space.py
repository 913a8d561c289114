"""The spaces that neuralforecast would search itself, read from its source and written as ours."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.models.of_neuralforecast import library_source
from tuner.models.of_neuralforecast.auto_space import study_of_library
from tuner.models.of_neuralforecast.library_source import (
    OWNED,
    Choice,
    Real,
    Whole,
    constructor_defaults,
    model_names,
    searched_by_library,
)
from tuner.spec.study_file import load_study_file
from tuner.spec.study_text import library_text

MODELS = [name for name in model_names() if name != "HINT"]
SOURCE = {
    "models/__init__.py": "__all__ = ['Net']\nfrom .net import Net\n",
    "models/net.py": (
        "class Net:\n"
        "    def __init__(self, h, width=48, sizes=2 * [3], old=None, loss=MAE(),\n"
        "                 learning_rate=0.5, windows_batch_size=64, kind='a', context_size=1):\n"
        "        self.width, self.context_size = width, 0\n"
        "        self.context_size = context_size\n"
        "        Linear(sizes, old, kind)\n"
    ),
    "auto.py": (
        "class AutoNet:\n"
        "    default_config = {\n"
        "        'h': None, 'random_seed': tune.randint(1, 20), 'width': tune.choice([64, 32]),\n"
        "        'sizes': tune.choice([[3, 3], [1, 2]]), 'old': tune.choice([1, 2]),\n"
        "        'learning_rate': tune.loguniform(1e-4, 1e-1), 'kind': tune.choice(['a', 'b']),\n"
        "        'context_size': tune.choice([1, 2]),\n"
        "        'max_steps': tune.quniform(lower=5, upper=15, q=1),\n"
        "    }\n"
    ),
}


@pytest.fixture
def of_a_small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path, text in SOURCE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.setattr(library_source, "_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.usefixtures("of_a_small_library")
def test_the_source_says_the_names_the_defaults_and_what_the_library_searches() -> None:
    assert model_names() == ("Net",)
    assert constructor_defaults("Net") == {
        "width": 48,
        "sizes": [3, 3],
        "old": None,
        "learning_rate": 0.5,
        "windows_batch_size": 64,
        "kind": "a",
        "context_size": 1,
    }
    assert searched_by_library("Net") == {
        "random_seed": Whole(1, 19),
        "width": Choice((64, 32)),
        "sizes": Choice(([3, 3], [1, 2])),
        "old": Choice((1, 2)),
        "learning_rate": Real(1e-4, 1e-1, log=True),
        "kind": Choice(("a", "b")),
        "context_size": Choice((1, 2)),
    }


@pytest.mark.usefixtures("of_a_small_library")
def test_a_default_joins_the_space_and_what_is_no_hyperparameter_is_left_out() -> None:
    proposal = study_of_library("Net")
    assert proposal["defaults"] == {
        "learning_rate": 0.5,
        "batch_size": 64,
        "width": 48,
        "sizes": "[3, 3]",
        "kind": "a",
    }
    here = "AutoNet searches here"
    assert proposal["space"] == {
        "learning_rate": {
            "low": 1e-4,
            "high": 0.5,
            "scale": "log",
            "reason": f"{here}; the class's default, 0.5, is added",
        },
        "batch_size": {
            "low": 16,
            "high": 256,
            "reason": "from a quarter of the class's windows_batch_size to four times it",
        },
        "width": {
            "type": "int",
            "low": 32,
            "high": 64,
            "step": 16,
            "reason": f"{here}; the class's default, 48, is added",
        },
        "sizes": {"type": "choice", "choices": ["[3, 3]", "[1, 2]"], "reason": here},
        "kind": {"type": "choice", "choices": ["a", "b"], "reason": here},
    }


def test_what_a_class_keeps_and_never_reads_is_not_searched() -> None:
    assert "context_size" in searched_by_library("TCN")
    assert "context_size" not in study_of_library("TCN")["space"]


def test_a_library_that_is_written_otherwise_is_said_to_be_so(of_a_small_library: Path) -> None:
    (of_a_small_library / "models/net.py").write_text("def Net(): ...\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no space can be proposed from it; write a study file"):
        study_of_library("Net")


def test_a_name_that_the_library_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown model of neuralforecast 'TNC' \(did you mean"):
        study_of_library("TNC")


@pytest.mark.parametrize("name", MODELS)
def test_each_proposal_holds_its_defaults_and_nothing_that_is_owned(name: str) -> None:
    proposal = study_of_library(name)
    assert proposal["defaults"].keys() == proposal["space"].keys()
    assert proposal["space"].keys() & OWNED.keys() == {"learning_rate", "batch_size"}
    for argument, table in proposal["space"].items():
        if "choices" in table:
            assert proposal["defaults"][argument] in table["choices"]
            assert len(set(map(repr, table["choices"]))) == len(table["choices"]) > 1
        else:
            assert table["low"] <= proposal["defaults"][argument] <= table["high"]


def values(table: dict[str, Any]) -> list[Any]:
    """All values of a range of whole numbers, or of a choice."""
    if "choices" in table:
        return list(table["choices"])
    low, high = table["low"], table["high"]
    if table.get("powers_of_two") or "type" not in table:
        return [1 << n for n in range(31) if low <= 1 << n <= high]
    return list(range(low, high + 1, table.get("step", 1)))


@pytest.mark.parametrize("name", MODELS)
def test_a_range_has_exactly_the_values_that_the_library_searches(name: str) -> None:
    proposal, preset = study_of_library(name), constructor_defaults(name)
    for argument, searched in searched_by_library(name).items():
        if (
            not isinstance(searched, Choice)
            or argument not in proposal["space"].keys() - OWNED.keys()
        ):
            continue
        theirs = [*searched.values, preset[argument]]
        ours = values(dict(proposal["space"][argument]))
        if isinstance(theirs[0], list):
            assert {str(each) for each in theirs} == set(ours)
        else:
            assert set(theirs) == set(ours)
        if all(isinstance(each, int) for each in ours) and not isinstance(ours[0], bool):
            assert all(a < b for a, b in pairwise(ours))


def test_a_proposal_imports_neither_torch_nor_ray_nor_the_library() -> None:
    code = (
        "import sys; from tuner.models.of_neuralforecast.auto_space import study_of_library; "
        "study_of_library('TCN'); "
        "print([m for m in ('torch', 'ray', 'neuralforecast', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MODELS)
def test_a_class_is_a_study_whose_defaults_are_the_classes_own(name: str) -> None:
    file = load_study_file(f"neuralforecast:{name}")
    assert (file.name, file.model) == (f"neuralforecast.{name}", f"neuralforecast:{name}")
    assert file.default_hyperparameters().weight_decay == 0.0
    for argument, value in file.defaults.own.items():
        default = constructor_defaults(name)[argument]
        assert (json.loads(str(value)) if isinstance(default, list) else value) == default


def test_the_text_of_a_study_is_the_study(tmp_path: Path) -> None:
    for name in ("NHITS", "TiDE"):
        path = tmp_path / f"{name}.toml"
        path.write_text(library_text(name, path), encoding="utf-8")
        read, made = load_study_file(str(path)), load_study_file(f"neuralforecast:{name}")
        assert read == made.model_copy(update={"name": read.name})
        assert read.name == {"NHITS": "nhits", "TiDE": "ti-de"}[name]


def test_a_name_that_is_no_network_is_no_study() -> None:
    with pytest.raises(UsageError, match="neuralforecast:HINT is no network"):
        load_study_file("neuralforecast:HINT")
