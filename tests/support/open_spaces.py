"""A network of the user's own whose depth, norm and kernel are searched, and its study file; the
study file of a model of neuralforecast."""

from __future__ import annotations

import json
from pathlib import Path

from tuner.spec.space import SearchSpace

NETWORK = """
from torch import nn


class Stack(nn.Module):
    def __init__(self, shapes, *, depth, norm, kernel_size=1, width=8):
        super().__init__()
        s = self.shapes = shapes
        layers = [nn.Conv1d(s.n_targets + s.n_past + s.n_future, width, 1)]
        for _ in range(depth):
            layers += [nn.Conv1d(width, width, kernel_size, padding="same"), nn.ReLU()]
            if norm == "batch":
                layers.append(nn.BatchNorm1d(width))
            if norm == "layer":
                layers.append(nn.GroupNorm(1, width))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width * s.input_size, s.horizon * s.n_targets * s.n_quantiles)

    def forward(self, past, future, static):
        s = self.shapes
        found = self.head(self.body(past.transpose(1, 2)).flatten(1))
        return found.view(-1, s.horizon, s.n_targets, s.n_quantiles)
"""

STUDY = """
name = "stack"
core_change = "a stack of convolutions"
model = "stack.py:Stack"

[defaults]
learning_rate = 1e-3
batch_size = 192
depth = 2
norm = "layer"
kernel_size = 3
input_size = 6

[space.learning_rate]
low = 1e-4
high = 1e-2
scale = "log"

[space.depth]
type = "int"
low = 1
high = 4
reason = "each doubles what a forecast sees"

[space.norm]
type = "choice"
choices = ["layer", "batch", "none"]

[space.kernel_size]
type = "int"
low = 1
high = 7
step = 2
when = { norm = ["layer", "batch"] }

[space.width]
type = "int"
low = 4
high = 16
powers_of_two = true
when = { norm = "none" }

[space.input_size]
type = "choice"
choices = [6, 9, 12]
reason = "how much past does it take?"

[training]
max_epochs = 3
"""

NHITS_STUDY = """
name = "nhits"
core_change = "theirs"
model = "neuralforecast:NHITS"

[model_settings]
pooling_mode = "MaxPool1d"
mlp_units = "[[64, 64], [64, 64], [64, 64]]"

[defaults]
learning_rate = 1e-3
batch_size = 64
activation = "ReLU"

[space.learning_rate]
low = 1e-4
high = 1e-2
scale = "log"

[space.activation]
type = "choice"
choices = ["ReLU", "Tanh"]
"""


DECLARED = {
    "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "scale": "log", "zero": True},
    "batch_size": {"type": "int", "low": 96, "high": 384, "step": 96},
    "depth": {"type": "int", "low": 1, "high": 6},
    "norm": {"type": "choice", "choices": ["layer", "batch", "none"]},
    "bias": {"type": "choice", "choices": [True, False]},
    "kernel_size": {"type": "int", "low": 3, "high": 9, "step": 2, "when": {"norm": "layer"}},
    "momentum": {
        "type": "float",
        "low": 0.01,
        "high": 0.5,
        "scale": "log",
        "when": {"norm": ["batch"], "bias": True},
    },
    "width": {"type": "int", "low": 16, "high": 128, "powers_of_two": True},
}
SPACE = SearchSpace.model_validate_json(json.dumps(DECLARED), strict=True)
"""One range of each kind, two of them with conditions."""


def write_stack(folder: Path, study: str = STUDY) -> Path:
    """The class and its study file, whose path it is."""
    (folder / "stack.py").write_text(NETWORK, encoding="utf-8")
    path = folder / "stack.toml"
    path.write_text(study, encoding="utf-8")
    return path
