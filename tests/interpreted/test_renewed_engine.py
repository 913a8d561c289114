"""An engine that begins another training of its sizes, beside one made for that training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.fused_epochs import network
from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.training.engines.fused_engine import TritonEngine


def step(engine: TritonEngine, learning_rate: float) -> list[torch.Tensor]:
    """One of them, then validation: losses, and everything that a step changes."""
    engine._state.set_learning_rate(learning_rate)
    engine._order.copy_(torch.tensor([1, 0]))
    engine._begin_epoch()
    engine.model.train()
    engine._train_batch(1)
    engine.model.eval()
    engine._validate()
    seen = [engine._train_loss_sum(), engine._validation_loss_sum(), *engine.state().values()]
    return [tensor.clone() for tensor in seen]


@pytest.fixture
def few(data: DeviceData) -> DeviceData:
    train, val = (
        replace(split, starts=split.starts[:n], series_index=split.series_index[:n])
        for split, n in ((data.train, 2), (data.val, 1))
    )
    return replace(data, train=train, val=val)


def test_a_renewed_engine_gives_the_bits_of_a_new_one(
    few: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    before = run_config(dropout=0.5, weight_decay=0.1, gradient_clip=0.5, batch_size=1)
    after = run_config(dropout=0.15, weight_decay=0.003, gradient_clip=1.0, batch_size=1)
    used = TritonEngine(before, few, network(before, few))
    step(used, 1e-2)
    model = network(after, few)
    torch.manual_seed(23)
    used.renew(after, model)
    torch.manual_seed(23)
    fresh = TritonEngine(after, few, network_like(model, after, few))
    torch.manual_seed(24)  # neither looks again
    expected = step(fresh, 3e-3)
    for ours, theirs in zip(step(used, 3e-3), expected, strict=True):
        assert torch.equal(ours, theirs)


def network_like(model: Any, config: RunConfig, data: DeviceData) -> Any:
    """The same weights in other memory."""
    with torch.random.fork_rng():
        other = network(config, data)
    other.load_state_dict(model.state_dict())
    return other


def test_an_engine_is_not_renewed_for_what_its_kernels_do_not_do(
    few: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    dropping, keeping = run_config(dropout=0.5), run_config(dropout=0.0)
    engine = TritonEngine(dropping, few, network(dropping, few))
    with pytest.raises(ValueError, match="takes a network of its own"):
        engine.renew(keeping, network(keeping, few))
    larger = run_config(dropout=0.5, hidden_size=32)
    with pytest.raises(ValueError, match="another network's parameters"):
        engine.renew(larger, network(larger, few))


def change(engine: TritonEngine) -> None:
    with torch.no_grad():
        for parameter in engine.model.parameters():
            parameter.add_(1)


def test_a_snapshot_of_one_copy_holds_what_the_network_holds(
    few: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    config = run_config(batch_size=1)
    engine = TritonEngine(config, few, network(config, few))
    best = engine.snapshot()
    first = [tensor.clone() for tensor in best.tensors]
    change(engine)
    assert all(torch.equal(p, q) for p, q in zip(best.tensors, first, strict=True))
    best.take(engine.model)
    then = [parameter.detach().clone() for parameter in engine.model.parameters()]
    change(engine)
    assert all(torch.equal(p, q) for p, q in zip(best.tensors, then, strict=True))
    other = network(config, few)
    best.give_to(other)
    engine._state.release()
    for parameter, expected in zip(other.parameters(), then, strict=True):
        assert torch.equal(parameter, expected)
