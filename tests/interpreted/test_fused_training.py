"""A few whole steps, network and all on fused kernels, beside the eager engine's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.fused_epochs import (
    assert_near,
    eager_epoch,
    fused_epoch,
    network,
    order_of,
    weights,
)
from tuner.config import RunConfig
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.fused_engine import TritonEngine
from tuner.training.engines.fused_step import RANDOM_STATE
from tuner.training.stage_marks import Stage


def first_and_last(split: DeviceSplit, n_each: int) -> DeviceSplit:
    """The first and the last windows: of both series."""
    chosen = [*range(n_each), *range(len(split) - n_each, len(split))]
    return replace(split, starts=split.starts[chosen], series_index=split.series_index[chosen])


def test_steps_with_the_fused_network_are_the_eager_ones(
    data: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    few = replace(data, train=first_and_last(data.train, 1), val=first_and_last(data.val, 1))
    config = run_config("original", weight_decay=0.1, gradient_clip=0.5, batch_size=1)
    fused, eager = (
        TritonEngine(config, few, network(config, few)),
        EagerEngine(config, few, network(config, few)),
    )
    order, seen = order_of(few, 1), list[Stage]()
    fused.mark_with(seen.append)
    assert fused_epoch(fused, order, 1e-3) == pytest.approx(
        eager_epoch(eager, order, 1e-3), rel=1e-5
    )
    assert_near(weights(fused.model), weights(eager.model), 1e-3)
    between = [Stage.DATA, Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER]
    assert seen == [Stage.OTHER, *between, Stage.OTHER] * len(few.train)


def test_a_step_does_what_its_kernels_do_around_autograd(
    data: DeviceData, run_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows with masks, head with loss, squares with gradient; dropout on, norm clipped."""
    few = replace(data, train=first_and_last(data.train, 1))
    config = run_config("original", dropout=0.3, gradient_clip=0.5, batch_size=2)
    joined = one_step(TritonEngine(config, few, network(config, few)))
    # To the step it is any other network.
    monkeypatch.setattr("tuner.training.engines.fused_step.FusedTSMixer", int)
    single = one_step(TritonEngine(config, few, network(config, few)))
    assert torch.equal(single._step._network.last_masks, joined._step._network.last_masks)
    assert torch.equal(single.state()[RANDOM_STATE], joined.state()[RANDOM_STATE])
    assert int(joined.state()[RANDOM_STATE][1]) == 1
    assert int(single._trained.done) == int(joined._trained.done) == 2
    assert float(single._train_loss_sum()) == pytest.approx(
        float(joined._train_loss_sum()), rel=1e-6
    )
    assert_near(weights(single.model), weights(joined.model), 1e-4)


def one_step(engine: TritonEngine) -> Any:
    engine.model.train()
    engine._state.set_learning_rate(1e-3)
    engine._order.copy_(torch.tensor([1, 0]))
    engine._begin_epoch()
    engine._train_batch(2)
    return engine


def test_a_closed_engine_leaves_nothing_to_the_garbage_collector(
    data: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    """A worker runs thousands of trainings: what waits in a cycle holds memory of the device."""
    config = run_config("original", dropout=0.2)
    # The first one: torch's optimisers import things, which may linger.
    TritonEngine(config, data, network(config, data))
    gc.collect()
    gc.disable()
    try:
        engine = TritonEngine(config, data, network(config, data))
        engine._order.copy_(torch.arange(len(data.train)))
        engine.model.train()
        engine._train_batch(1)
        step = engine._step
        held = [
            step._flat.values,
            step._optimizer._averages,
            step._optimizer._gradients,
            step._network,
            step,
        ]
        seen = [weakref.ref(each) for each in held]
        engine._state.release()
        del held, step, engine
        assert [each() for each in seen] == [None] * 5
    finally:
        gc.enable()
