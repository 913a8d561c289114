"""Batch sizes that leave one window for the last batch of an epoch."""

from __future__ import annotations

import pytest
import torch

from tuner.training.batching import batch_shapes, batches, sizes_with_a_lone_window


@pytest.mark.parametrize("count", [1, 2, 3, 10, 64, 257, 1000])
def test_sizes_with_a_lone_window_are_those_whose_batches_end_so(count: int) -> None:
    order = torch.arange(count)
    ends_so = [size for size in range(1, count + 1) if len(list(batches(order, size))[-1]) == 1]
    assert sizes_with_a_lone_window(count) == ends_so
    assert all(1 in batch_shapes(count, size) for size in ends_so)


def test_of_many_windows_they_are_found_at_once() -> None:
    assert sizes_with_a_lone_window(1_000_000_000_001)[:4] == [1, 2, 4, 5]
