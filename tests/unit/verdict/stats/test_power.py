"""The difference that a test is said to find is found as often as is said."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.verdict.stats.pairs import POWER, sign_flip_shift, t_shift
from tuner.verdict.stats.permutation import sign_flip_p

REPETITIONS = 600


@pytest.mark.parametrize(("pairs", "level"), [(10, 0.05), (10, 0.0025), (8, 0.025), (14, 0.01)])
def test_a_shift_is_found_in_nine_cases_of_ten(pairs: int, level: float) -> None:
    differences = np.random.default_rng(3).normal(
        sign_flip_shift(pairs, level), 1.0, size=(REPETITIONS, pairs)
    )
    found = sum(sign_flip_p(each) <= level for each in differences)
    assert found / REPETITIONS == pytest.approx(POWER, abs=0.035)


def test_where_only_pairs_that_all_agree_are_enough_it_takes_more_than_student_says() -> None:
    assert sign_flip_shift(10, 0.0025) > 1.25 * t_shift(10, 0.0025)
    assert sign_flip_shift(40, 0.0025) == t_shift(40, 0.0025)
