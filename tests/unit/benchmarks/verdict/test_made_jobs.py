"""Made jobs have what their kinds say: something to gain, or nothing, and at which place."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.verdict.made_jobs import DEFAULT_MQL, JOBS, KINDS, MadeJob, job
from benchmarks.verdict.truths import truth


def judged(made: MadeJob, **changed: object) -> tuple[float, float]:
    """Time over the default's, and the error over it, with these values."""
    default = made.where(dict(made.default))
    place = made.where(dict(made.default) | changed)
    times = made.seconds(np.vstack([place, default]))
    errors = made.mql(np.vstack([place, default]))
    return float(times[0] / times[1]), float(errors[0] / errors[1])


def test_a_default_takes_a_second_and_jobs_differ_by_their_seeds() -> None:
    assert len({each.seed for each in JOBS}) == len({each.name for each in JOBS}) == len(JOBS)
    for kind in KINDS:
        one, other = (job(f"made, {kind}, {draw}") for draw in (1, 2))
        here = one.where(dict(one.default))
        assert float(one.seconds(here)[0]) == pytest.approx(1.0)
        assert float(one.mql(here)[0]) == pytest.approx(DEFAULT_MQL)
        if kind != "nothing":
            places = np.random.default_rng(0).random((20, one.space.dimensions))
            assert not np.allclose(one.seconds(places), other.seconds(places))


def test_each_kind_has_its_gain_where_it_says() -> None:
    for draw in range(1, 6):
        batch = job(f"made, batch, {draw}")
        assert min(judged(batch, batch_size=size)[0] for size in (64, 1024)) < 0.65
        assert judged(job(f"made, width, {draw}"), hidden_size=16)[0] < 0.65
        assert judged(job(f"made, dropout, {draw}"), dropout=0.3)[0] < 0.65
        both = job(f"made, batch with rate, {draw}")
        alone = judged(both, batch_size=1024)[0]
        together = judged(both, batch_size=1024, learning_rate=1.2e-3)[0]
        assert together < 0.65 < alone
        there = job(f"made, condition, {draw}")
        assert judged(there, norm="batch", momentum=0.8)[0] < 0.65
        assert judged(job(f"made, higher rate, {draw}"), learning_rate=1.8e-3)[0] < 0.65
        assert judged(job(f"made, lower rate, {draw}"), learning_rate=7e-5)[0] < 0.65
    nothing = job("made, nothing, 1")
    places = np.random.default_rng(1).random((500, nothing.space.dimensions))
    assert nothing.seconds(places).min() > 1.0
    assert nothing.mql(places).min() > DEFAULT_MQL


def test_a_simulation_finds_them_by_name_beside_the_fitted_truths() -> None:
    assert truth("made, batch, 3") is job("made, batch, 3")
