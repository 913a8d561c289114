"""A class of the user's own with `*args` or `**kwargs`, which take what has no name of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tests.support.own_classes import OWN
from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.errors import UsageError
from tuner.models.registry import build_model

SHAPES = ModelShapes(
    input_size=8, horizon=3, n_targets=2, n_past=0, n_future=2, n_static=1, n_quantiles=3
)
OTHERS = """

class Deep(Own):
    def __init__(self, shapes, *, hidden_size, dropout, depth=1):
        super().__init__(shapes, hidden_size=hidden_size, dropout=dropout)
        self.depth = depth

class Swallows(Own):
    def __init__(self, shapes, *rest, hidden_size, dropout, **more):
        super().__init__(shapes, hidden_size=hidden_size, dropout=dropout)
        self.more = more

class Passes(Deep):
    def __init__(self, shapes, **depth):
        super().__init__(shapes, **depth)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own_models.py"
    path.write_text(OWN + OTHERS, encoding="utf-8")
    return path


def built(model: str, settings: dict[str, Any]) -> nn.Module:
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=4
    )
    return build_model(Architecture(model=model, settings=settings), SHAPES, hyperparameters)


def test_whatever_an_own_class_takes_by_its_kwargs_reaches_it(file: Path) -> None:
    assert built(f"{file}:Swallows", {"width": 3}).more == {"width": 3}
    assert built(f"{file}:Passes", {"depth": 4}).depth == 4  # the name that its base knows


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("more", ":Swallows: more is no argument: **more takes others, by their own names"),
        ("rest", ":Swallows: rest is no argument: *rest takes others"),
    ],
)
def test_the_name_of_what_takes_others_is_no_argument(file: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as caught:
        built(f"{file}:Swallows", {name: 5})
    assert "\n" not in str(caught.value)
