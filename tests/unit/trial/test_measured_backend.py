"""A job whose backend is measured: before its runs, once, and all of them keep to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_tasks import tiny_task
from tests.support.trial_jobs import job_of
from tuner.config import Backend, RunConfig, StopReason
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.devices import Gpu, exclusive
from tuner.devices.backend_rules import BackendChoice
from tuner.trial import seeds_and_reruns
from tuner.trial.job import TimeLeft
from tuner.trial.seeds_and_reruns import run_job, with_backend

GPU = Gpu(index=0, uuid="GPU-1", name="NVIDIA Example", number=0)
MINE = BackendChoice(backend=Backend.GRAPH, epoch_s={"graph": 0.25, "eager": 1.0})
COUNTS = BackendChoice(backend=Backend.EAGER, reason="it waits", epoch_s={"eager": 0.5})


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    return to_device(prepare(tiny_task(), cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """What was measured, each time with the same outcome."""
    configs: list[RunConfig] = []

    def measure(config: RunConfig, _: DeviceData) -> BackendChoice:
        configs.append(config)
        return MINE

    monkeypatch.setattr(seeds_and_reruns, "what_auto_means", measure)
    return configs


def test_what_was_measured_is_told_and_what_counts_is_kept_to(
    data: DeviceData, asked: list[RunConfig]
) -> None:
    told: list[BackendChoice] = []

    def on_backend(choice: BackendChoice) -> BackendChoice:
        told.append(choice)
        return COUNTS

    job = with_backend(job_of(device=GPU, on_backend=on_backend), data, TimeLeft())
    assert job is not None
    assert (job.backend, told) == (COUNTS, [MINE])
    assert [config.training.backend for config in asked] == [Backend.AUTO]
    assert with_backend(job, data, TimeLeft()) is job
    assert len(asked) == 1


def test_nothing_is_measured_on_a_cpu_nor_for_who_is_to_stop(
    data: DeviceData, asked: list[RunConfig]
) -> None:
    job = job_of()
    assert with_backend(job, data, TimeLeft()) is job
    with exclusive(GPU.lock_names):
        stopping = job_of(device=GPU, should_stop=lambda: StopReason.INTERRUPTED)
        assert with_backend(stopping, data, TimeLeft()) is None
    assert asked == []


def test_each_run_has_the_backend_that_counts_and_says_why(data: DeviceData) -> None:
    done = run_job(job_of(backend=COUNTS, seeds=2), {"0" * 64: data})
    assert done is not None
    recorded = done.recorded
    assert recorded.backend == "eager"
    assert recorded.backend_fallback == "it waits"
    assert recorded.backend_measured == "an epoch takes 0.5 s by eager"
    plain = run_job(job_of(), {"0" * 64: data})
    assert plain is not None
    assert (plain.recorded.backend_fallback, plain.recorded.backend_measured) == (None, None)
