"""Whether a training is worth it, in words that need no sign."""

from __future__ import annotations

import pytest

from tuner.study.baselines import Scored, worth

RUNS = (1.0, 1.1, 0.9, 1.0)
LINES = Scored(name="nlinear", test_mql=1.0, test_runs=RUNS)


@pytest.mark.parametrize(
    ("mql", "by", "said", "share"),
    [
        (0.5, (0.0, 0.02, 0.0, -0.02), "Worth the training", "(47 to 53 % less)"),
        (0.95, (0.0, 0.02, 0.0, -0.02), "Worth the training", "(2.4 to 7.6 % less)"),
        (1.0, (0.1, -0.1, 0.1, -0.1), "No difference shown", "(18 % more to 18 % less)"),
        (2.0, (0.0, 0.02, 0.0, -0.02), "Not worth the training", "(97 to 103 % more)"),
    ],
)
def test_how_much_better_or_worse_is_said_without_a_sign(
    mql: float, by: tuple[float, ...], said: str, share: str
) -> None:
    runs = [each + mql - 1 + more for each, more in zip(RUNS, by, strict=True)]
    found = worth(mql, runs, [LINES])
    assert found is not None
    assert found.sentence.startswith(said)
    assert found.sentence.endswith(share)
