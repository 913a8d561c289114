"""Truths that are known: their surfaces, their defaults, and the noise of a seed."""

import math

import numpy as np
import pytest

from benchmarks.verdict.budgets import Gpu
from benchmarks.verdict.surfaces import draw
from benchmarks.verdict.truths import NOISE, TRUTHS, noise_of_mql, truth

NAME = "forest, layernorm"


def test_what_is_reported_is_of_truths_that_nothing_was_tuned_on_and_none_is_made_twice() -> None:
    of_report = {(made.variant, made.surface) for made in TRUTHS if made.report}
    assert len(of_report) == 4
    assert not of_report & {(made.variant, made.surface) for made in TRUTHS if not made.report}
    assert len({made.surface for made in TRUTHS if made.report}) == 4
    assert len({(made.variant, made.surface) for made in TRUTHS}) == len(TRUTHS)


def test_the_default_is_planted_where_the_record_has_it() -> None:
    job = truth(NAME)
    here = job.where(job.default)
    assert job.mql(here) == pytest.approx(job._recorded.default_mql)
    assert np.exp(job.log_epochs(here)) == pytest.approx(np.exp(job._recorded.default_log_epochs))
    gpu = Gpu(NAME, 1, math.inf)
    runs = [gpu.drawn(gpu.default) for _ in range(2000)]
    mqls = np.array([run.mql for run in runs])
    assert mqls.mean() == pytest.approx(job._recorded.default_mql, abs=0.001)
    assert mqls.std() == pytest.approx(NOISE.sd[-1], rel=0.1)
    assert np.std(np.log([run.seconds for run in runs])) == pytest.approx(0.12, rel=0.1)


def test_noise_grows_towards_short_trainings() -> None:
    random = np.random.default_rng(2)
    for epochs, sd in zip(NOISE.epochs, NOISE.sd, strict=True):
        noise = noise_of_mql(np.full(20_000, epochs), random)
        assert noise.std() == pytest.approx(sd, rel=0.05)
        assert abs(noise.mean()) < 4 * sd / np.sqrt(20_000)


@pytest.mark.parametrize("kernel", ["exponential", "matern32", "gaussian"])
def test_a_draw_goes_through_its_points_and_is_another_elsewhere(kernel: str) -> None:
    random = np.random.default_rng(3)
    x = random.random((80, 2))
    y = np.sin(4 * x[:, 0]) + 0.01 * random.standard_normal(80)
    one, other = (draw(x, y, kernel=kernel, shrink=1.0, seed=seed) for seed in (1, 2))
    assert np.abs(one(x) - y).mean() < 0.2
    assert one(x) == pytest.approx(draw(x, y, kernel=kernel, shrink=1.0, seed=1)(x))
    away = random.random((50, 2)) + 3.0
    assert np.abs(one(away) - other(away)).mean() > np.abs(one(x) - other(x)).mean()
