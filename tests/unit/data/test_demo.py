from __future__ import annotations

import numpy as np

from tuner.data.sources import demo_series


def test_the_same_seed_gives_the_same_series_and_another_seed_others() -> None:
    first, again, other = (demo_series(rows=200, seed=seed, n_targets=3) for seed in (0, 0, 1))
    assert [one.name for one in first] == ["demo1", "demo2"]
    assert all(np.array_equal(a.values, b.values) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].values, other[0].values)
    assert not np.array_equal(first[0].values, first[1].values)


def test_daily_and_weekly_cycles_can_be_learned() -> None:
    """Within each series and column, yesterday and last week say more than twelve hours ago."""
    for one in demo_series(rows=1600, seed=0, n_targets=3):
        values = one.values - one.values.mean(axis=0)

        def correlation(lag: int, values: np.ndarray = values) -> np.ndarray:
            return np.asarray((values[lag:] * values[:-lag]).mean(axis=0) / values.var(axis=0))

        assert (correlation(24) > correlation(12) + 0.3).all()
        assert (correlation(168) > correlation(84)).all()
        assert (correlation(168) < 0.99).all()  # and noise is left over
