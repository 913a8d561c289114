"""Study files, networks and exported studies that people get wrong: one clear line with the place
and the remedy, no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.refusals import refused
from tests.support.small_study import STUDY_TOML
from tuner.data.task import demo_task

DEMO = ("launch", "--task", "demo", "--cpu")

STUDY_FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key": (
        "dropout = 0.1",
        "dropuot = 0.1",
        ("mine.toml, line 12", "defaults.dropuot", "'dropout'"),
    ),
    "missing key": (
        "hidden_size = 8\n",
        "",
        ("mine.toml, line 9", "defaults.hidden_size", "is missing", "add it"),
    ),
    "low above high": (
        "low = 1e-4, high = 1e-2",
        "low = 1e-2, high = 1e-4",
        ("mine.toml, line 17", "space.learning_rate", "0.01 is above high = 0.0001", "swap"),
    ),
    "log range from 0": (
        "low = 1e-6, high",
        "low = 0.0, high",
        ("mine.toml, line 18", "space.weight_decay", "log range cannot start at 0", "zero = true"),
    ),
    "size that is no power of two": (
        "low = 8, high = 16",
        "low = 8, high = 12",
        ("mine.toml, line 20", "space.hidden_size", "high = 12 is no power of two", "8"),
    ),
    "defaults outside the range": (
        "dropout = 0.1",
        "dropout = 0.9",
        ("mine.toml", "defaults", "dropout = 0.9 is outside 0 to 0.3", "widen"),
    ),
    "number in quotes": (
        "patience = 100000",
        'patience = "3"',
        ("mine.toml, line 24", "training.patience", '"3"'),
    ),
    "syntax error": (
        'model = "rmsnorm"',
        'model = "rmsnorm',
        ("mine.toml, line 4", "not valid TOML"),
    ),
    "unknown network": (
        'model = "rmsnorm"',
        'model = "rmsnrm"',
        ("mine.toml", "'rmsnrm'", "did you mean 'rmsnorm'", ":Class"),
    ),
    "unknown setting": (
        "n_blocks = 1",
        "n_block = 1",
        ("mine.toml", "'n_block'", "did you mean 'n_blocks'"),
    ),
    "a name that is no name": (
        'name = "small"',
        'name = "a/b"',
        ("mine.toml, line 2", "'name'", '"a/b"'),
    ),
}


@pytest.mark.parametrize("mistake", STUDY_FILES)
def test_a_wrong_study_file_is_one_line(mistake: str, tmp_path: Path) -> None:
    right, wrong, says = STUDY_FILES[mistake]
    assert STUDY_TOML.count(right) == 1
    (tmp_path / "mine.toml").write_text(STUDY_TOML.replace(right, wrong), encoding="utf-8")
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says)


def test_a_study_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    refused(
        *DEMO,
        "--variant",
        "mine.toml",
        folder=tmp_path,
        code=2,
        says=("mine.toml", "no study file", "built-in"),
    )


def test_a_folder_in_place_of_a_study_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").mkdir()
    refused(*DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=("mine.toml", "folder"))


OWN_MODELS = """
import torch
from torch import nn

class WrongShape(nn.Module):
    def __init__(self, shapes, *, hidden_size, dropout):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, past, future, static):
        return self.layer(past[:, :, :1])

class NoModule:
    pass
"""

OUTPUT = (2, demo_task().horizon, len(demo_task().target_columns), len(demo_task().quantiles))
OWN: dict[str, tuple[str, tuple[str, ...]]] = {
    "module missing": ("my_modles:WrongShape", ("no module 'my_modles'", "current folder")),
    "class missing": (
        "my_models:WrongShap",
        ("my_models", "'WrongShap'", "did you mean 'WrongShape'"),
    ),
    "not an nn.Module": (
        "my_models:NoModule",
        ("my_models:NoModule", "not a subclass of torch.nn.Module"),
    ),
    "wrong output shape": (
        "my_models:WrongShape",
        ("must return", f"{OUTPUT}", f"not (2, {demo_task().input_size}, 1)"),
    ),
}


@pytest.mark.parametrize("mistake", OWN)
def test_an_own_model_that_cannot_work_is_one_line(mistake: str, tmp_path: Path) -> None:
    reference, says = OWN[mistake]
    (tmp_path / "my_models.py").write_text(OWN_MODELS, encoding="utf-8")
    study = STUDY_TOML.replace('model = "rmsnorm"', f'model = "{reference}"').replace(
        "n_blocks = 1", ""
    )
    (tmp_path / "mine.toml").write_text(study, encoding="utf-8")
    no_cache = {
        "PYTHONDONTWRITEBYTECODE": "1"
    }  # a user's module leaves __pycache__, which is Python's doing
    refused(
        *DEMO, "--variant", "mine.toml", folder=tmp_path, code=2, says=says, environment=no_cache
    )


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "[" * 100_000, '{"format": 1}'],
    ids=["empty", "cut short", "null", "a list", "a deep list", "another format"],
)
@pytest.mark.parametrize("command", ["best", "import"])
def test_a_file_that_is_no_exported_study_is_one_line(
    content: str, command: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text(content, encoding="utf-8")
    arguments = {
        "best": ("best", "--storage", "mine.json"),
        "import": ("study", "import", "mine.json"),
    }[command]
    refused(*arguments, folder=tmp_path, code=2, says=("mine.json is no exported study",))
