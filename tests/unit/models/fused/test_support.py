"""Which networks the fused kernels serve; nothing here needs Triton to run anything."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

from tuner.config import ModelShapes, Precision
from tuner.kernels import FusedTSMixer, why_not
from tuner.kernels.plan import TILE, columns_of, layout_of, make_plan, make_tables
from tuner.models.tsmixer import DESIGNS, TSMixer

SHAPES = ModelShapes(
    input_size=20, horizon=6, n_targets=3, n_past=1, n_future=2, n_static=2, n_quantiles=5
)
CUDA = torch.device("cuda")


def network(
    name: str = "original", shapes: ModelShapes = SHAPES, hidden: int = 16, **settings: int
) -> TSMixer:
    return TSMixer(shapes, DESIGNS[name], hidden_size=hidden, dropout=0.1, **settings)


@pytest.mark.parametrize("name", ["original", "rmsnorm", "layernorm", "simple"])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.TF32])
def test_four_variants_are_served(name: str, precision: Precision) -> None:
    pytest.importorskip("triton")
    assert why_not(network(name), precision, CUDA) is None


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Linear(1, 1), "Linear"),
        (network("batchnorm"), "BatchNorm1d"),
        (network(hidden=512), "hidden size of 256"),
        (network(hidden=24), "multiple of 16"),
        (network(feed_forward_size=32), "feed-forward size"),
        (network(shapes=replace(SHAPES, horizon=96)), "horizon of 64"),
        (network(shapes=replace(SHAPES, n_past=80)), "64 columns"),
        (network(shapes=replace(SHAPES, n_static=16)), "as many covariates"),
        (network().double(), "float32"),
    ],
)
def test_what_is_not_served_says_why(model: nn.Module, says: str) -> None:
    reason = why_not(model, Precision.FP32, CUDA)
    assert reason is not None
    assert says in reason
    assert "\n" not in reason


def test_bf16_and_a_cpu_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "bf16" in (why_not(network(), Precision.BF16, CUDA) or "")
    assert "CUDA" in (why_not(network(), Precision.FP32, torch.device("cpu")) or "")


def test_a_fused_network_is_built_without_triton() -> None:
    code = "import sys, tuner.kernels; sys.exit('triton' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_reads_the_models_own_parameters() -> None:
    model = network()
    keys = list(model.state_dict())
    fused = FusedTSMixer(model)
    with torch.no_grad():
        model.get_parameter("head.weight").fill_(3)
    assert bool((fused.weights.head.linear == 3).all())
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("name", ["original", "rmsnorm", "layernorm", "simple"])
def test_every_element_of_the_flat_gradient_is_summed_exactly_once(name: str) -> None:
    """And nothing of the gaps between parameters."""
    model = network(name)
    products, columns = make_tables(model, make_plan(model, "ieee", dropout=True))
    parameters = list(model.parameters())
    layout = layout_of(parameters)
    seen = torch.zeros(layout.size, dtype=torch.int64)
    for *_, n_out, n_in, weight, bias, tile_out, tile_in in products:
        for o in range(TILE * tile_out, min(n_out, TILE * tile_out + TILE)):
            first, last = TILE * tile_in, min(n_in, TILE * tile_in + TILE)
            seen[weight + o * n_in + first : weight + o * n_in + last] += 1
            if tile_in == 0:
                seen[bias + o] += 1
    for n_rows, rows in columns.items():
        for *_, n_columns, width, weight, bias, hours, features, first in rows:
            for column in range(first, min(n_columns, first + columns_of(n_rows))):
                for at in (weight, bias):
                    if at >= 0:
                        seen[at + column // width * hours + column % width * features] += 1
    for view in layout.views(seen, parameters):
        assert bool((view == 1).all())
    assert int(seen.sum()) == sum(parameter.numel() for parameter in parameters)
