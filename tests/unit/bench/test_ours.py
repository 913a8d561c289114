"""Our engines as contenders: no figures of one backend under the name of another."""

from __future__ import annotations

import pytest

from tuner.bench.contender import Job, run_bench
from tuner.bench.entrants import make_plan
from tuner.data.windows import DeviceData
from tuner.training.engines.eager import EagerEngine


class _FellBack(EagerEngine):
    fallback = "the fused kernels know no such norm"


def test_a_backend_that_does_not_serve_the_network_drops_out_with_the_reason(
    job: Job, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.estimate.driven.make_engine", _FellBack)
    plan = make_plan(
        job,
        data,
        variants="original",
        backends="eager",
        against="none",
        hidden=[16],
        batch=[64],
    )
    (measured,) = run_bench(plan.contenders, rounds=1, epochs=1, gpu=None, announce=print)
    assert measured.rounds == []
    assert (
        measured.failure == "FellBackError: would run as eager: the fused kernels know no such norm"
    )
