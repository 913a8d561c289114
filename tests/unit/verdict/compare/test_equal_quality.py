"""The levels at which times are compared: round numbers over what was verified."""

from __future__ import annotations

import pytest

from tuner.verdict.compare.equal_quality import round_levels


@pytest.mark.parametrize(
    ("lowest", "highest", "levels"),
    [
        (0.8076, 0.8515, [0.81, 0.82, 0.83, 0.84, 0.85, 0.86]),
        (3.1, 9.9, [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]),
        (120.0, 395.0, [150.0, 200.0, 250.0, 300.0, 350.0, 400.0]),
        (0.5, 0.7, [0.5, 0.55, 0.6, 0.65, 0.7]),
        (0.1 + 0.2, 0.1 + 0.2, [0.3]),
    ],
)
def test_levels_are_round_and_from_the_best_to_the_worst(
    lowest: float, highest: float, levels: list[float]
) -> None:
    assert round_levels(lowest, highest) == levels


@pytest.mark.parametrize("median", [0.8, 0.0, 1234.5])
def test_one_quality_alone_still_has_a_level(median: float) -> None:
    levels = round_levels(median, median)
    assert len(levels) == 1
    assert levels[0] >= median
