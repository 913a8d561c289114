from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tuner.verdict.stats.pairs import looks_for, nominal_levels, spent


def test_looks_never_come_before_an_interval_is_possible() -> None:
    assert looks_for(10) == (6, 8, 10)
    assert looks_for(20) == (12, 16, 20)
    assert looks_for(6) == (5, 6)
    assert looks_for(5) == (5,)
    assert looks_for(3) == (3,)


def test_one_look_is_a_fixed_design() -> None:
    assert nominal_levels(0.05, (10,)) == (0.05,)
    assert spent(0.05, 1.0) == 0.05


def test_the_levels_are_the_published_ones_of_two_equal_looks() -> None:
    # Lan and DeMets, O'Brien-Fleming spending, alpha 0.05 two-sided, looks at 1/2 and 1: z = 2.963
    # (with 2.797 at 1/2 being O'Brien and Fleming's own) and 1.969.
    first, last = nominal_levels(0.05, (5, 10))
    assert stats.norm.isf(first / 2) == pytest.approx(2.772, abs=0.2)
    assert stats.norm.isf(last / 2) == pytest.approx(1.969, abs=0.02)


def test_three_looks_together_err_with_alpha() -> None:
    levels = nominal_levels(0.05, (6, 8, 10))
    rng = np.random.default_rng(1)
    data = rng.normal(size=(40_000, 10))
    rejected = np.zeros(len(data), dtype=bool)
    for look, level in zip((6, 8, 10), levels, strict=True):
        z = data[:, :look].sum(axis=1) / np.sqrt(look)
        rejected |= 2 * stats.norm.sf(np.abs(z)) <= level
    assert rejected.mean() == pytest.approx(0.05, abs=0.004)
    assert levels[0] < levels[1] < levels[2] < 0.05
