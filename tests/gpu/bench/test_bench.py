"""The bench on CUDA: kernels, memory and utilisation, and the libraries training there."""

from __future__ import annotations

import os

import pytest
import torch

from tests.support.present import present
from tuner.bench.contender import Contender, Job, run_bench
from tuner.bench.entrants import make_plan
from tuner.bench.report import summarise
from tuner.config import Precision
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.devices import list_gpus


@pytest.fixture(scope="module")
def contenders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Contender, ...]:
    prepared = prepare(load_task("demo"), cache_dir=tmp_path_factory.mktemp("prepared"))
    job = Job(prepared=prepared, device=torch.device("cuda:0"), precision=Precision.FP32)
    plan = make_plan(
        job,
        to_device(prepared, job.device),
        variants="original",
        backends="eager,graph",
        against=None,
        hidden=[16],
        batch=[64],
    )
    return plan.contenders


def test_everyone_is_measured_and_looked_into(contenders: tuple[Contender, ...]) -> None:
    gpu = list_gpus(os.environ)[0]
    rows = summarise(run_bench(contenders, rounds=1, epochs=2, gpu=gpu, announce=print))
    assert [row.failure for row in rows] == [""] * len(contenders)
    by_name = {row.contender: row for row in rows}
    eager, graph = by_name["tuner original eager"], by_name["tuner original graph"]
    assert present(graph.s_per_epoch) < present(eager.s_per_epoch)
    for row in rows:
        assert 20 < present(row.kernels_per_step) < 3000, row
        assert 0 < present(row.peak_memory_bytes) < 2**30, row
        assert row.gpu_utilisation is None or 0 <= row.gpu_utilisation <= 100
    assert 0.5 < present(graph.kernels_per_step) / present(eager.kernels_per_step) < 2


def test_turns_leave_nothing_on_the_device(contenders: tuple[Contender, ...]) -> None:
    run_bench(contenders, rounds=1, epochs=1, gpu=None, announce=print)
    before = torch.cuda.memory_allocated()
    run_bench(contenders, rounds=2, epochs=1, gpu=None, announce=print)
    assert torch.cuda.memory_allocated() - before < 2**20


def test_a_librarys_memory_does_not_depend_on_who_came_before(
    contenders: tuple[Contender, ...],
) -> None:
    pytest.importorskip("darts", reason="darts is not installed")
    darts = next(each for each in contenders if each.entry.library == "darts")
    graph = next(each for each in contenders if each.entry.backend == "graph")
    darts.run(1)  # whatever is loaded only once
    after_itself = darts.run(1).peak_memory_bytes
    graph.run(1)
    after_graphs = darts.run(1).peak_memory_bytes
    assert after_itself is not None
    assert after_itself > 0
    assert after_graphs == after_itself
