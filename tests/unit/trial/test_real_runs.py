"""A trial's runs with real trainings, of a few milliseconds each: what is recorded of them beside
the result."""

from __future__ import annotations

import gc
import itertools
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.present import present
from tests.support.trial_jobs import job_of
from tuner.config import Backend, StopReason, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu, Observation, exclusive
from tuner.spec.membership import seed_of_trial
from tuner.training import Evaluation, FitResult, evaluate, fit
from tuner.training.engines import choose as backends
from tuner.training.engines.pool import EnginePool
from tuner.trial import run as objective
from tuner.trial import seeds_and_reruns as runs
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import run_job


class Unwatched:
    """A look at a GPU that is not there."""

    def __init__(self, device: object) -> None:
        del device

    def clock_starts(self) -> None:
        """Nothing counts joules."""

    def finish(self) -> Observation:
        return Observation(contaminated=False, why="")


def tiny(folder: Path) -> DeviceData:
    task = Task(
        name="tiny",
        source=DemoSource(kind="demo", rows=120),
        target_columns=("a",),
        frequency="h",
        input_size=12,
        horizon=3,
        quantiles=(0.1, 0.5, 0.9),
        eval_quantiles=(0.1, 0.5, 0.9),
    )
    return to_device(prepare(task, cache_dir=folder), "cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    return tiny(tmp_path_factory.mktemp("prepared"))


def test_two_real_seeds_differ_and_each_has_its_own_curve(data: DeviceData) -> None:
    heard: list[tuple[int, int]] = []
    job = job_of(
        seeds=2, reruns=0, on_epoch=lambda record, repeat: heard.append((repeat, record.epoch))
    )
    done = run_job(job, {"0" * 64: data})
    assert done is not None
    assert heard == [(repeat, epoch) for repeat in (0, 1) for epoch in (1, 2, 3)]
    first, second = present(done.recorded.runs)
    assert first["test_mql"] != second["test_mql"]
    assert first["timed_until"] <= second["timed_from"]
    assert (done.recorded.converged, done.recorded.stopped_by) == (False, "epoch_limit")


def test_what_a_trial_took_beside_its_clock_is_recorded_and_its_network_is_gone(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks: list[weakref.ref[torch.nn.Module]] = []
    trained_s: list[float] = []

    def timed(*given: Any, **more: Any) -> FitResult:
        result = fit(*given, **more)
        trained_s.append(result.total_s)
        return result

    def seen(model: torch.nn.Module, data: DeviceData, **more: Any) -> Evaluation:
        networks.append(weakref.ref(model))
        return evaluate(model, data, **more)

    def gone() -> dict[str, Any]:
        """Asked when the memory that is still held is read, on a GPU: the network must not be part
        of it."""
        left = sum(network() is not None for network in networks)
        return {"allocated_memory_bytes": left}

    monkeypatch.setattr(objective, "fit", timed)
    monkeypatch.setattr(objective, "evaluate", seen)
    monkeypatch.setattr(objective, "_memory_held", gone)
    monkeypatch.setattr(objective, "Watch", Unwatched)
    gc.disable()
    try:
        done = run_job(job_of(reruns=0, device=Gpu(0, "GPU-0", "none", 0)), {"0" * 64: data})
    finally:
        gc.enable()
    assert done is not None
    a = done.recorded
    assert (len(networks), a.allocated_memory_bytes) == (1, 0)
    assert present(a.evaluation_s) > 0
    # And none of what is only for the records.
    assert a.total_s == trained_s[0] + present(a.evaluation_s)
    assert present(a.setup_s) + present(a.wall_clock_s) <= trained_s[0]
    assert present(a.wait_s) >= 0


def test_trials_that_share_a_core_take_turns_by_their_records(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, one with core 0 and one with cores 0 and 1: while one's clock ran, the other's
    did not."""
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))

    def work(cores: tuple[int, ...]) -> list[tuple[float, float]]:
        jobs = [job_of(number=number, reruns=0, device=CpuCores(cores)) for number in range(4)]
        done = [present(run_job(job, {"0" * 64: data})).recorded for job in jobs]
        return [(present(each.timed_from), present(each.timed_until)) for each in done]

    with ThreadPoolExecutor() as pool:
        parts = [part for spent in pool.map(work, [(0,), (0, 1)]) for part in spent]
    assert len(parts) == 8
    parts.sort()
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(parts))


def test_its_device_is_a_trials_own_until_its_network_is_evaluated(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever trained beside the evaluation would have a clock that is not his alone."""
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    free: list[bool] = []

    def seen(model: torch.nn.Module, data: DeviceData, **more: Any) -> Evaluation:
        found = evaluate(model, data, **more)
        with exclusive(CpuCores((0,)).lock_names, give_up=lambda: True) as mine:
            free.append(mine)
        return found

    monkeypatch.setattr(objective, "evaluate", seen)
    assert run_job(job_of(reruns=0), {"0" * 64: data}) is not None
    assert free == [False]
    with exclusive(CpuCores((0,)).lock_names, give_up=lambda: True) as mine:
        assert mine


@pytest.mark.parametrize(
    "change", [{"number": 5}, {"study_key": "other@2"}, {"device": CpuCores((0, 1))}]
)
def test_a_checkpoints_identity_tells_trials_studies_and_device_models_apart(
    data: DeviceData, change: dict[str, Any]
) -> None:
    def identity(job: TrialJob) -> dict[str, Any]:
        return runs._OfOneSeed(
            job, data, 0, seed_of_trial(job.number, root=job.seed_root)
        )._identity()

    assert identity(job_of()) == identity(job_of())
    assert identity(job_of(**change)) != identity(job_of())
    # Other cores of the same model run on the same clock.
    assert identity(job_of(device=CpuCores((1,)))) == identity(job_of())


def test_a_checkpoint_of_captured_graphs_for_want_of_a_compiler_is_not_continued_by_fused_kernels(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def identity(backend: Backend, reason: str | None) -> dict[str, Any]:
        monkeypatch.setattr(backends, "why_nothing_is_built", lambda: reason)
        definition = replace(
            job_of().definition, training=TrainingSettings(max_epochs=3, backend=backend)
        )
        return runs._OfOneSeed(job_of(definition=definition), data, 0, 7)._identity()

    assert identity(Backend.TRITON, None)["backend"] == "triton"
    assert identity(Backend.TRITON, "no compiler")["backend"] == "graph"
    for backend in (Backend.EAGER, Backend.COMPILE):
        assert identity(backend, "no compiler") == identity(backend, None)


def test_engines_that_are_kept_are_recorded_and_leave_the_device_its_memory(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr(objective, "Watch", Unwatched)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: given_back.append(True))
    monkeypatch.setattr(objective, "_memory_held", dict)
    job = job_of(reruns=0, device=Gpu(0, "GPU-0", "none", 0))
    kept = present(run_job(job, {"0" * 64: data}, engines=EnginePool())).recorded
    assert (kept.kept_engines, kept.kept_engines_bytes) == (0, 0)
    assert given_back == []
    alone = present(run_job(job, {"0" * 64: data})).recorded
    assert (alone.kept_engines, alone.kept_engines_bytes) == (None, None)
    assert given_back == [True]


def test_a_training_that_begins_again_leaves_one_curve(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is spoiled and so made again: the first run's curve is told at the end."""

    def twice(*given: Any, **more: Any) -> FitResult:
        fit(*given, **more)
        return fit(*given, **more)

    shares = [0.1, 0.9]

    class Disturbed(Unwatched):
        def finish(self) -> Observation:
            details = {"foreign_cpu_share": shares.pop(0)}
            return Observation(contaminated=True, why="others", details=details)

    told: list[int] = []
    monkeypatch.setattr(objective, "fit", twice)
    monkeypatch.setattr(objective, "Watch", Disturbed)
    job = job_of(reruns=1, on_curve=lambda curve, _: told.extend(each.epoch for each in curve))
    run_job(job, {"0" * 64: data})
    assert told == [1, 2, 3]


@pytest.mark.parametrize("lost", [False, True])
def test_a_training_that_leaves_the_device_unusable_says_so_and_the_device_is_asked_no_more(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    def without_memory(*given: Any, **more: Any) -> FitResult:
        ended = fit(*given, **more)
        return replace(
            ended, stopped_by=StopReason.OUT_OF_MEMORY, message="out of memory", context_lost=lost
        )

    def ask() -> dict[str, Any]:
        asked.append(True)
        return {}

    asked: list[bool] = []
    monkeypatch.setattr(objective, "fit", without_memory)
    monkeypatch.setattr(objective, "_memory_held", ask)
    monkeypatch.setattr(objective, "Watch", Unwatched)
    done = run_job(job_of(reruns=0, device=Gpu(0, "GPU-0", "none", 0)), {"0" * 64: data})
    assert done is not None
    assert (done.recorded.stopped_by, done.recorded.failure) == (
        "out_of_memory",
        "out of memory",
    )
    assert (bool(done.recorded.context_lost), len(asked)) == (lost, not lost)
