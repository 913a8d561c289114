"""What follows from some sizes for those between."""

from __future__ import annotations

import math

import pytest

from tuner.estimate.cost_model import CostModel, Size, steps_of_epoch

HIDDEN, BATCH = (16, 32, 64, 128, 256), (32, 64, 128, 256, 512)
EVERY: list[Size] = [
    {"hidden_size": h, "batch_size": b, "deep": deep}
    for h in HIDDEN
    for b in BATCH
    for deep in (False, True)
]


def truth(size: Size) -> float:
    """A step: what starting it takes, and its work; twice as much where it is deep."""
    work: float = 1e-8 * int(size["batch_size"]) * int(size["hidden_size"]) ** 1.3
    return (2e-4 + work) * (2.0 if size["deep"] else 1.0)


def test_sizes_between_are_foretold_within_a_tenth() -> None:
    measured = EVERY[::3]
    model = CostModel.of([(size, truth(size)) for size in measured])
    found = model.at(EVERY)
    off = [abs(f.middle / truth(size) - 1) for size, f in zip(EVERY, found, strict=True) if f]
    assert len(off) == len(EVERY)
    assert sum(each <= 0.1 for each in off) >= 0.95 * len(off)
    assert max(off) < 0.2


def test_what_was_measured_is_taken_as_it_is() -> None:
    model = CostModel.of([(size, truth(size)) for size in EVERY[::4]])
    for size, found in zip(EVERY[::4], model.at(EVERY[::4]), strict=True):
        assert found is not None
        assert found.middle == pytest.approx(truth(size))
        assert found.low < found.middle < found.high


def test_a_size_between_two_costs_no_less_than_the_one_and_no_more_than_the_other() -> None:
    sizes: list[Size] = [{"hidden_size": h, "batch_size": 64} for h in (16, 32, 128, 256)]
    # A step as of another kernel from 128 on: no line goes through it.
    model = CostModel.of(list(zip(sizes, (1.0, 1.0, 5.0, 5.0), strict=True)))
    (found,) = model.at([{"hidden_size": 64, "batch_size": 64}])
    assert found is not None
    assert 1.0 <= found.middle <= 5.0
    assert found.ratio > 1.05


def test_of_one_measured_size_others_follow_by_the_root_with_a_wide_range() -> None:
    model = CostModel.of([({"hidden_size": 64, "batch_size": 64}, 2.0)])
    (found,) = model.at([{"hidden_size": 256, "batch_size": 64}])
    assert found is not None
    assert found.middle == pytest.approx(4.0)
    assert found.ratio > 3
    assert CostModel.of([]).at([{"hidden_size": 1}]) == [None]


def test_several_timings_of_a_size_count_by_their_median() -> None:
    size: Size = {"batch_size": 64}
    model = CostModel.of([(size, 1.0), (size, 1.1), (size, 9.0), (size, math.nan)])
    (found,) = model.at([size])
    assert found is not None
    assert found.middle == pytest.approx(1.1)
    assert model.sizes == (size,)


def test_a_short_last_batch_is_a_batch() -> None:
    assert steps_of_epoch(100, 64) == 2
    assert steps_of_epoch(128, 64) == 2
    assert steps_of_epoch(10, 64) == 1


def test_what_costs_less_as_it_grows_is_no_bound_from_below() -> None:
    """Patches that are twice as long are half as many: their attention takes a quarter."""

    def memory(size: Size) -> float:
        tokens = 168 / int(size["patch_len"])
        return int(size["heads"]) * tokens**2 + 4.0 * tokens

    sizes: list[Size] = [
        {"heads": heads, "patch_len": patch_len, "batch_size": batch}
        for heads in (4, 8, 16)
        for patch_len in (8, 16, 24)
        for batch in (32, 64)  # a validation has the most memory, whatever the batch
    ]
    known, asked = sizes[::2] + sizes[1:8:2], sizes[9::2]
    model = CostModel.of([(size, memory(size)) for size in known])
    assert model.directions == {"heads": 1, "patch_len": -1, "batch_size": 1}
    for size, found in zip(asked, model.at(asked), strict=True):
        assert found is not None
        assert found.middle == pytest.approx(memory(size), rel=0.05)


def test_a_number_that_goes_either_way_bounds_nothing() -> None:
    costs = {8: 3.0, 16: 1.0, 32: 2.0, 64: 4.0}
    model = CostModel.of([({"kernel": kernel}, cost) for kernel, cost in costs.items()])
    assert model.directions == {}
    assert "kernel" not in model.directions
