"""The ladder on CUDA: rungs of every kind that a GPU has, with their figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.support.present import present
from tuner.bench.contender import Job, run_bench
from tuner.bench.ladder import Ladder, Trainings, ladder_rows, make_ladder, train_rungs
from tuner.config import Precision
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import list_gpus
from tuner.spec.study_file import load_study_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    prepared = prepare(load_task("demo"), cache_dir=tmp_path_factory.mktemp("prepared"))
    return Job(prepared=prepared, device=torch.device("cuda:0"), precision=Precision.FP32)


@pytest.fixture(scope="module")
def data(job: Job) -> DeviceData:
    return to_device(job.prepared, job.device)


def test_every_rung_of_a_gpu_is_measured_or_has_a_reason(job: Job, data: DeviceData) -> None:
    """Beside other tests, so no time is compared. Of single changes, what no cumulated rung has."""
    whole = make_ladder(job, data, load_study_file("original"), batch_size=64)
    fused = "fused kernels"
    rungs = tuple(r for r in whole.rungs if r.kind == "cumulated" or r.change == fused)
    wanted = [each.config for each in rungs if not each.why_not]
    contenders = tuple(each for each in whole.contenders if each.config in wanted)
    ladder = Ladder(variant="original", rungs=rungs, contenders=contenders)
    found = run_bench(
        ladder.contenders, rounds=1, epochs=1, gpu=list_gpus(os.environ)[0], announce=print
    )
    rows = {(row.kind, row.change): row for row in ladder_rows(ladder, found)}
    for (kind, change), row in rows.items():
        if "fused" in change and kind == "cumulated":
            assert row.failure  # bf16 is not for these kernels
            continue
        assert row.failure == "", change
        assert present(row.s_per_epoch) > 0
        assert present(row.speedup_epoch) > 0
        assert present(row.peak_memory_bytes) > 0
        assert present(row.kernels_per_step) > 0


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_rungs_of_both_half_precisions_train(
    job: Job, data: DeviceData, precision: Precision, tmp_path: Path
) -> None:
    study = tmp_path / "short.toml"
    plain = Path(__file__).parents[3] / "studies" / "original.toml"
    study.write_text(plain.read_text().replace("max_epochs = 200", "max_epochs = 2"))
    whole = make_ladder(job, data, load_study_file(str(study)), precision=precision, batch_size=64)
    ladder = Ladder(
        variant="original",
        rungs=whole.rungs[:4],  # nothing that is compiled
        contenders=whole.contenders[:4],
    )
    trained = Trainings()
    train_rungs(ladder, data, trained, seeds=2, budget_s=120, announce=print)
    assert (trained.failures, trained.missing) == ({}, "")
    assert {number: len(of) for number, of in trained.of.items()} == dict.fromkeys(range(4), 2)
