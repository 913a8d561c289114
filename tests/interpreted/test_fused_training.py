"""A few whole steps, network and all on fused kernels, beside the eager engine's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from epochs import assert_near, eager_epoch, fused_epoch, network, order_of, weights

from tuner.config import RunConfig
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.training.eager import EagerEngine
from tuner.training.fused.engine import TritonEngine


def first_and_last(split: DeviceSplit, n_each: int) -> DeviceSplit:
    """The first and the last windows: of both series."""
    chosen = [*range(n_each), *range(len(split) - n_each, len(split))]
    return replace(split, starts=split.starts[chosen], series_index=split.series_index[chosen])


def test_steps_with_the_fused_network_are_the_eager_ones(
    data: DeviceData, run_config: Callable[..., RunConfig]
) -> None:
    few = replace(data, train=first_and_last(data.train, 2), val=first_and_last(data.val, 1))
    config = run_config("original", weight_decay=0.1, gradient_clip=0.5, batch_size=3)
    fused, eager = TritonEngine(config, few, network(config, few)), EagerEngine(config, few, network(config, few))
    for seed in (1, 2):
        order = order_of(few, seed)
        assert fused_epoch(fused, order, 1e-3) == pytest.approx(eager_epoch(eager, order, 1e-3), rel=1e-5)
    assert_near(weights(fused.model), weights(eager.model), 1e-3)
