"""Linear algebra of the models of runs uses one thread, whatever the process has."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - its threads are among those that are looked at
from threadpoolctl import threadpool_info, threadpool_limits

from tuner.search import next_run_model
from tuner.search.gaussian_process import one_thread
from tuner.search.next_run_model import Repeated, believed


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread_in_here_and_as_many_as_before_after_it() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert threads() == {2}
        with one_thread():
            assert threads() == {1}
        assert threads() == {2}


def test_a_model_of_runs_is_fitted_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fit = next_run_model.probable_settings

    def watched(data: Repeated, iterations: int) -> next_run_model.Settings:
        seen.append(threads())
        return fit(data, iterations)

    monkeypatch.setattr(next_run_model, "probable_settings", watched)
    random = np.random.default_rng(0)
    data = Repeated(
        where=random.random((20, 2)),
        mean=random.random(20),
        runs=np.ones(20),
        squares=np.zeros(20),
        length=np.zeros(20),
    )
    with threadpool_limits(2, user_api="blas"):
        believed(data)
        assert threads() == {2}
    assert seen
    assert all(found == {1} for found in seen)
