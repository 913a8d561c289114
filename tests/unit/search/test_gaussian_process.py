"""The Gaussian process: what it learns from noisy figures, and how sure it says to be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tuner.search.gaussian_process import GaussianProcess


def test_a_process_learns_a_function_from_noisy_values_and_says_how_sure_it_is() -> None:
    random = np.random.default_rng(0)
    x, new = random.random((80, 3)), random.random((200, 3))

    def function(x: Any) -> Any:
        return 5 + np.sin(4 * x[:, 0]) + x[:, 1] ** 2

    process = GaussianProcess(x, function(x) + random.normal(0, 0.1, 80))
    mean, sd = process.posterior(new)
    off = mean - function(new)
    assert np.sqrt(np.mean(off**2)) < 0.15  # the function's own spread is 0.7
    assert np.mean(np.abs(off) < 2 * sd) > 0.85
    assert process.posterior(np.full((1, 3), 3.0))[1] > 3 * sd.mean()  # far away nothing is known


def test_the_settings_are_the_most_probable_ones() -> None:
    random = np.random.default_rng(1)
    x = random.random((100, 2))
    process = GaussianProcess(x, np.sin(9 * x[:, 0]) + random.normal(0, 0.3, 100))
    lengths, share = 1 / process._shrink, process._noise
    assert lengths[1] > 1.5 * lengths[0]  # nothing depends on the second coordinate
    assert share == pytest.approx(0.09 / (0.5 + 0.09), rel=0.6)
