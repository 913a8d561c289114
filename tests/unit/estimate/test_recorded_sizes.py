"""Sizes that were trained on a GPU, foretold from those that were measured there before."""

from __future__ import annotations

import pytest

from benchmarks.estimate.sizes import MEMORY_WITHIN, TIME_WITHIN, told_again
from tests.support.paths import REPOSITORY

RECORDED = REPOSITORY / "benchmarks" / "estimate" / "h200-sizes.json"


@pytest.mark.parametrize("variant", range(3))
def test_every_recorded_size_is_foretold_within_a_tenth_and_its_memory_within_a_twentieth(
    variant: int,
) -> None:
    found = told_again(RECORDED)[variant]
    assert found["sizes"] >= 20
    assert found["time_worst"] <= TIME_WITHIN
    assert found["memory_worst"] <= MEMORY_WITHIN
