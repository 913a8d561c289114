"""Steps on the kernels around a compiled network, beside the eager engine's.

The networks are compiled as far as graphs, which run operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.support.fused_epochs import (
    assert_near,
    eager_epoch,
    fused_epoch,
    network,
    order_of,
    weights,
)
from tests.support.traced_networks import guards_not_timed
from tuner.config import Architecture, Backend, ModelShapes, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.compiled_network import CompiledPieces, CompiledWhole
from tuner.models.tsmixer import InPlace
from tuner.training.engines.captured import no_silent_fall_back
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.fused_engine import FusedEngine
from tuner.training.engines.fused_step import RANDOM_STATE

Configure = Callable[..., RunConfig]
TRACED = "aot_eager"
EVEN = 11
"""The training's 22 windows in two batches of one size."""


@pytest.fixture(autouse=True)
def _never_eager() -> Iterator[None]:
    """As in a training: without it, what is compiled for the ninth time runs as it is written."""
    with no_silent_fall_back(), guards_not_timed():
        yield


class Compiled(FusedEngine):
    """As `CompiledStepEngine` is on a CUDA device."""

    backend = Backend.COMPILE


def with_blocks(n_blocks: int, config: RunConfig) -> RunConfig:
    """Half of the time goes into tracing what comes after the covariates: the blocks."""
    settings = {"n_blocks": n_blocks}
    return replace(
        config, architecture=Architecture(model=config.architecture.model, settings=settings)
    )


def in_pieces(config: RunConfig, data: DeviceData) -> Compiled:
    model = network(config, data)
    return Compiled(
        config, data, model, lambda: CompiledPieces(model, Precision.FP32, InPlace(), TRACED)
    )


def at_once(config: RunConfig, data: DeviceData, model: nn.Module) -> Compiled:
    return Compiled(config, data, model, lambda: CompiledWhole(model, Precision.FP32, TRACED))


def test_epochs_are_the_eager_ones_and_none_compiles_again(
    bare_data: DeviceData, run_config: Configure
) -> None:
    """22 windows in batches of 8: those that do not come out even are graphs of their own. The
    compiler is told to take no size for a variable."""
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    config = with_blocks(1, run_config(weight_decay=0.1, gradient_clip=0.05))
    ours = in_pieces(config, bare_data)
    theirs = EagerEngine(config, bare_data, network(config, bare_data))
    for seed in (1, 2):
        order = order_of(bare_data, seed)
        assert fused_epoch(ours, order, 1e-3) == pytest.approx(
            eager_epoch(theirs, order, 1e-3), rel=1e-4
        )
    assert_near(weights(ours.model), weights(theirs.model), 1e-3)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 3 * 2  # full, short and validation, two pieces each


class Own(nn.Module):
    """A network of somebody's own: one parameter is never used, another does not learn."""

    def __init__(self, shapes: ModelShapes) -> None:
        super().__init__()
        self.shapes = shapes
        n_out = shapes.horizon * shapes.n_targets * shapes.n_quantiles
        columns = shapes.n_targets + shapes.n_past + shapes.n_future
        self.unused = nn.Parameter(torch.ones(3))
        self.fixed = nn.Parameter(torch.full((n_out,), 0.5), requires_grad=False)
        self.layer = nn.Linear(shapes.input_size * columns, n_out)

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        s = self.shapes
        rows: Tensor = self.layer(past.flatten(1)) + self.fixed
        return rows.view(-1, s.horizon, s.n_targets, s.n_quantiles)


def own(data: DeviceData) -> Own:
    torch.manual_seed(4)
    return Own(data.shapes)


def test_a_network_of_ones_own_is_trained_and_what_it_does_not_use_only_decays(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(weight_decay=0.1, gradient_clip=0.5)
    ours, theirs = at_once(config, data, own(data)), EagerEngine(config, data, own(data))
    order = order_of(data, 1)
    assert fused_epoch(ours, order, 1e-3) == pytest.approx(
        eager_epoch(theirs, order, 1e-3), rel=1e-5
    )
    trained, expected = dict(ours.model.named_parameters()), dict(theirs.model.named_parameters())
    names = ["layer.weight", "layer.bias", "fixed"]
    assert_near([trained[n].detach() for n in names], [expected[n].detach() for n in names], 1e-3)
    assert bool((trained["fixed"] == 0.5).all())
    steps = -(-len(order) // 8)
    assert torch.allclose(trained["unused"], torch.full((3,), (1 - 1e-3 * 0.1) ** steps))


def test_its_state_is_continued_bit_for_bit_and_knows_no_other_random_state(
    bare_data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a CUDA device.
    monkeypatch.setattr("tuner.models.dropout._has_cheap_masks", lambda x: False)
    data, config = bare_data, with_blocks(1, run_config(dropout=0.3, batch_size=EVEN))
    whole = in_pieces(config, data)
    fused_epoch(whole, order_of(data, 1), 1e-3)
    saved = {name: tensor.clone() for name, tensor in whole.state().items()}
    assert RANDOM_STATE not in saved
    masks = torch.get_rng_state()
    expected = fused_epoch(whole, order_of(data, 2), 1e-3)

    resumed = in_pieces(config, data)
    resumed.load(saved | {RANDOM_STATE: torch.tensor([1, 2])})  # of a training on fused kernels
    torch.set_rng_state(masks)
    assert fused_epoch(resumed, order_of(data, 2), 1e-3) == expected
    assert all(
        torch.equal(a, b) for a, b in zip(weights(whole.model), weights(resumed.model), strict=True)
    )


def test_what_warm_up_did_is_forgotten(bare_data: DeviceData, run_config: Configure) -> None:
    config = with_blocks(1, run_config())  # as one above: its graphs are found
    engine = in_pieces(config, bare_data)
    before = {
        name: tensor.clone()
        for name, tensor in engine.state().items()
        if not name.startswith("model/")
    }
    fused_epoch(engine, order_of(bare_data, 1), 1e-3)
    assert not torch.equal(engine.state()["optimizer/0/exp_avg"], before["optimizer/0/exp_avg"])
    engine._state.reset_optimizer()
    assert all(torch.equal(engine.state()[name], tensor) for name, tensor in before.items())
