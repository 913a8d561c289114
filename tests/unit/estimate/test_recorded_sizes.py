"""Sizes that were trained on a GPU, foretold from those that were measured there before."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks.estimate.sizes import MEMORY_WITHIN, TIME_WITHIN, told_again
from tests.support.paths import REPOSITORY
from tuner.estimate.cost_model import SizeCosts, key_of

RECORDED = REPOSITORY / "benchmarks" / "estimate"


@pytest.mark.parametrize(
    ("file", "variants"), [("h200-sizes.json", 3), ("h200-fresh-sizes.json", 2)]
)
def test_every_recorded_size_is_foretold_within_a_tenth_and_its_memory_within_a_twentieth(
    file: str, variants: int
) -> None:
    found = told_again(RECORDED / file)
    assert len(found) == variants
    assert min(each["sizes"] for each in found) >= 20
    assert max(each["time_worst"] for each in found) <= TIME_WITHIN
    assert max(each["memory_worst"] for each in found) <= MEMORY_WITHIN


@pytest.mark.parametrize("measured", [1, 4, 8])
def test_however_few_sizes_were_measured_the_ranges_hold_four_of_five(measured: int) -> None:
    """Over all that were recorded; of a measurement that time cut short nothing else is known."""
    held = []
    for file in ("h200-sizes.json", "h200-fresh-sizes.json"):
        for variant in json.loads((RECORDED / file).read_text())["variants"]:
            costs = SizeCosts.from_json(json.dumps(variant["costs"]))
            few = dataclasses.replace(costs, sizes=costs.sizes[:measured])
            sizes = [row["size"] for row in variant["rows"]]
            times, memory = few.epoch_seconds(sizes), few.peak_bytes(sizes)
            for row in variant["rows"]:
                key = key_of(row["size"])
                held.append(times[key].low <= row["epoch_s"] <= times[key].high)
                held.append(memory[key].low <= row["peak_bytes"] <= memory[key].high)
                assert memory[key].ratio < 100
    assert sum(held) / len(held) >= 0.8
