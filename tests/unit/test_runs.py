"""A trial's runs: again where a timing was contaminated, once for each seed, and what they come to."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from optuna.trial import TrialState

from tuner import objective, runs
from tuner.config import Architecture, Hyperparameters, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import DemoSource, Task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu, Observation
from tuner.job import TrialJob
from tuner.runs import cleanest, combined, run_job
from tuner.storage import TrialResult
from tuner.study import SearchPolicy, StudyDefinition, load_study_file
from tuner.study.seeds import seed_of_trial
from tuner.training import Evaluation, FitResult

Script = Sequence[TrialResult | None]


class Unwatched:
    """A look at a GPU that is not there."""

    def __init__(self, device: object) -> None:
        del device

    def finish(self) -> Observation:
        return Observation(contaminated=False, why="")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
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
    return to_device(prepare(task, cache_dir=tmp_path_factory.mktemp("prepared")), "cpu")


def job_of(*, seeds: int = 1, folder: Path | None = None, reruns: int = 1, **more: Any) -> TrialJob:
    file = load_study_file("rmsnorm")
    definition = StudyDefinition.of(
        file,
        task={"name": "tiny"},
        data_hash="0" * 64,
        training=TrainingSettings(max_epochs=3),
        seeds_per_trial=seeds,
    )
    definition = replace(definition, architecture=Architecture(model="rmsnorm", settings={"n_blocks": 1}))
    given: dict[str, Any] = {
        "study": "tiny-rmsnorm",
        "definition": definition,
        "policy": SearchPolicy(reruns=reruns),
        "number": 4,
        "hyperparameters": Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=64
        ),
        "device": CpuCores((0,)),
        "on_epoch": lambda record, repeat: None,
        "should_stop": lambda: None,
        "study_key": "tiny-rmsnorm@1.5",
        "checkpoints": folder,
    }
    return TrialJob(**given | more)


def result(
    seconds: float = 2.0, mql: float = 0.5, *, dirty: float = 0.0, state: TrialState = TrialState.COMPLETE, **more: Any
) -> TrialResult:
    attributes = {
        "wall_clock_s": seconds,
        "test_mql": mql,
        "epochs": 7,
        "converged": True,
        "stopped_by": "converged",
        "contaminated": dirty > 0,
        "contamination": f"others used {dirty:.0%}" if dirty else "",
        "device_watch": {"foreign_cpu_share": dirty},
        "timed_from": 100.0,
        "timed_until": 100.0 + seconds,
        "peak_memory_bytes": 10,
    }
    values = (seconds, mql) if state is TrialState.COMPLETE else None
    return TrialResult(state, values, attributes | more)


class Trainings:
    """Takes the place of the training: results as scripted, and what was asked for."""

    def __init__(self, script: Script) -> None:
        self._script: Iterator[TrialResult | None] = iter(script)
        self.seeds: list[int] = []
        self.stems: list[str] = []

    def __call__(self, definition: object, hyperparameters: object, seed: int, *_: object, **more: Any) -> Any:
        self.seeds.append(seed)
        self.stems.append(more["checkpoints"].stem if more["checkpoints"] else "")
        made = next(self._script)
        return made and replace(made, attributes=made.attributes | {"seed": seed})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[TrialJob, Script], tuple[TrialResult | None, Trainings]]:
    def ran(job: TrialJob, script: Script) -> tuple[TrialResult | None, Trainings]:
        trainings = Trainings(script)
        monkeypatch.setattr(runs, "run_trial", trainings)
        monkeypatch.setattr(runs._OfOneSeed, "_identity", lambda self: {"trial": self.job.number, "seed": self.seed})
        return run_job(job, {"0" * 64: None}), trainings  # type: ignore[dict-item]

    return ran


Run = Callable[[TrialJob, Script], tuple[TrialResult | None, Trainings]]


def test_a_clean_run_is_made_once(run: Run) -> None:
    done, trainings = run(job_of(), [result(2.0)])
    assert done is not None
    assert done.values == (2.0, 0.5)
    assert "timings" not in done.attributes
    assert trainings.seeds == [seed_of_trial(4)]


def test_a_contaminated_run_is_made_again_with_the_same_seed_and_the_clean_time_counts(run: Run) -> None:
    done, trainings = run(job_of(), [result(3.0, dirty=0.4), result(2.0)])
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4)] * 2
    assert (done.values, done.attributes["contaminated"]) == ((2.0, 0.5), False)
    assert [(t["wall_clock_s"], t["contaminated"]) for t in done.attributes["timings"]] == [(3.0, True), (2.0, False)]


def test_where_every_run_was_contaminated_the_cleanest_counts_and_says_so(run: Run) -> None:
    script = [result(3.0, dirty=0.2), result(2.0, dirty=0.4), result(2.5, dirty=0.3)]
    done, trainings = run(job_of(reruns=2), script)
    assert done is not None
    assert len(trainings.seeds) == 3
    assert (done.values, done.attributes["contaminated"]) == ((3.0, 0.5), True)
    assert len(done.attributes["timings"]) == 3


def test_no_run_is_made_again_where_that_was_not_asked_for_or_no_time_counts(run: Run) -> None:
    assert len(run(job_of(reruns=0), [result(dirty=0.5)])[1].seeds) == 1
    diverged = result(dirty=0.5, state=TrialState.FAIL, stopped_by="diverged")
    assert len(run(job_of(), [diverged])[1].seeds) == 1
    # A trial is pruned for its time: a contaminated one deserves another go.
    done, _ = run(job_of(), [result(dirty=0.5, state=TrialState.PRUNED), result(2.0)])
    assert done is not None
    assert done.state is TrialState.COMPLETE


def test_an_interruption_hands_the_trial_back(run: Run) -> None:
    assert run(job_of(), [None])[0] is None
    assert run(job_of(), [result(dirty=0.5), None])[0] is None
    assert run(job_of(seeds=3), [result(), None])[0] is None


def test_with_several_seeds_the_medians_count_and_every_run_is_recorded(run: Run) -> None:
    script = [result(3.0, 0.5, epochs=7), result(9.0, 0.4, epochs=20, peak_memory_bytes=30), result(4.0, 0.7, epochs=8)]
    done, trainings = run(job_of(seeds=3), script)
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4, repeat) for repeat in range(3)]
    assert done.values == (4.0, 0.5)
    a = done.attributes
    assert (a["wall_clock_s"], a["test_mql"], a["epochs"], a["peak_memory_bytes"]) == (4.0, 0.5, 8, 30)
    assert (a["seed"], a["converged"], a["stopped_by"]) == (seed_of_trial(4), True, "converged")
    assert [(r["seed"], r["wall_clock_s"], r["epochs"]) for r in a["runs"]] == [
        (seed_of_trial(4, repeat), seconds, epochs)
        for repeat, (seconds, epochs) in enumerate([(3.0, 7), (9.0, 20), (4.0, 8)])
    ]


def test_a_seed_that_does_not_complete_is_the_trials_outcome_and_the_rest_are_not_run(run: Run) -> None:
    diverged = result(1.0, state=TrialState.FAIL, stopped_by="diverged", converged=False, failure="nan in epoch 2")
    done, trainings = run(job_of(seeds=3), [result(), diverged])
    assert done is not None
    assert len(trainings.seeds) == 2
    assert (done.state, done.values, done.attributes["failure"]) == (TrialState.FAIL, None, "nan in epoch 2")
    assert [r["stopped_by"] for r in done.attributes["runs"]] == ["converged", "diverged"]


def test_a_seed_that_a_limit_cut_makes_the_trial_one_that_did_not_converge() -> None:
    cut = result(9.0, stopped_by="epoch_limit", converged=False)
    done = combined([result(2.0), cut, result(3.0)], 3)
    assert (done.state, done.values) == (TrialState.COMPLETE, (3.0, 0.5))
    assert (done.attributes["converged"], done.attributes["stopped_by"]) == (False, "epoch_limit")


def test_one_contaminated_seed_contaminates_the_median() -> None:
    done = combined([result(2.0), result(3.0, dirty=0.3), result(4.0)], 3)
    assert (done.attributes["contaminated"], done.attributes["contamination"]) == (True, "others used 30%")


def test_what_an_earlier_attempt_finished_is_not_run_again(run: Run, tmp_path: Path) -> None:
    job = job_of(seeds=2, folder=tmp_path)
    assert run(job, [result(3.0, dirty=0.4), None])[0] is None
    assert run(job, [result(2.0), None])[0] is None
    done, trainings = run(job, [result(5.0)])
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4, 1)]
    assert done.values == (3.5, 0.5)
    assert len(done.attributes["runs"][0]["timings"]) == 2


def test_finished_runs_of_another_training_or_damaged_ones_are_not_used(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(seeds=2, folder=tmp_path)
    run(job, [result(3.0), None])
    (path,) = tmp_path.glob("*-runs.json")
    text = path.read_text()
    for spoiled in ("", text[:-9], text.replace("3.0", "1.0"), '{"runs": [], "sha256": 3}'):
        path.write_text(spoiled)
        _, trainings = run(job, [None])
        assert trainings.seeds == [seed_of_trial(4, 0)], spoiled
    assert caplog.text.count("are not used") == 4


def test_each_run_has_checkpoints_of_its_own(run: Run, tmp_path: Path) -> None:
    _, trainings = run(job_of(seeds=2, folder=tmp_path), [result(dirty=0.5), result(), result()])
    assert trainings.stems == [f"trial-000004-seed-{s}-run-{r}" for s, r in ((0, 0), (0, 1), (1, 0))]
    _, trainings = run(job_of(seeds=2, folder=tmp_path, seed=99), [result()])
    assert trainings.stems == ["verify-000004-seed-99-run-0"]
    assert trainings.seeds == [99]


def test_a_clean_run_beats_a_faster_contaminated_one() -> None:
    assert cleanest([result(1.0, dirty=0.5), result(2.0)]).values == (2.0, 0.5)


def test_two_real_seeds_differ_and_each_has_its_own_curve(data: DeviceData) -> None:
    heard: list[tuple[int, int]] = []
    job = job_of(seeds=2, reruns=0, on_epoch=lambda record, repeat: heard.append((repeat, record.epoch)))
    done = run_job(job, {"0" * 64: data})
    assert done is not None
    assert heard == [(repeat, epoch) for repeat in (0, 1) for epoch in (1, 2, 3)]
    first, second = done.attributes["runs"]
    assert first["test_mql"] != second["test_mql"]
    assert first["timed_until"] <= second["timed_from"]
    assert (done.attributes["converged"], done.attributes["stopped_by"]) == (False, "epoch_limit")


def test_what_a_trial_took_beside_its_clock_is_recorded_and_its_network_is_gone(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks: list[weakref.ref[torch.nn.Module]] = []
    trained_s: list[float] = []
    real_fit, real_evaluate = objective.fit, objective.evaluate

    def timed(*given: Any, **more: Any) -> FitResult:
        result = real_fit(*given, **more)
        trained_s.append(result.total_s)
        return result

    def seen(model: torch.nn.Module, data: DeviceData) -> Evaluation:
        networks.append(weakref.ref(model))
        return real_evaluate(model, data)

    def gone() -> dict[str, int]:
        """Asked when the memory that is still held is read, on a GPU: the network must not be part of it."""
        return {"networks": sum(network() is not None for network in networks)}

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
    a = done.attributes
    assert (len(networks), a["networks"]) == (1, 0)
    assert a["evaluation_s"] > 0
    assert a["total_s"] == trained_s[0] + a["evaluation_s"]  # and none of what is only for the records
    assert a["setup_s"] + a["wall_clock_s"] <= trained_s[0]
    assert a["wait_s"] >= 0


def test_trials_that_share_a_core_take_turns_by_their_records(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers, one with core 0 and one with cores 0 and 1: while one's clock ran, the other's did not."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work(cores: tuple[int, ...]) -> list[tuple[float, float]]:
        jobs = [job_of(number=number, reruns=0, device=CpuCores(cores)) for number in range(4)]
        done = [run_job(job, {"0" * 64: data}) for job in jobs]
        return [(d.attributes["timed_from"], d.attributes["timed_until"]) for d in done if d is not None]

    with ThreadPoolExecutor() as pool:
        parts = [part for spent in pool.map(work, [(0,), (0, 1)]) for part in spent]
    assert len(parts) == 8
    parts.sort()
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(parts))


@pytest.mark.parametrize("change", [{"number": 5}, {"study_key": "other@2"}, {"device": CpuCores((0, 1))}])
def test_a_checkpoints_identity_tells_trials_studies_and_device_models_apart(
    data: DeviceData, change: dict[str, Any]
) -> None:
    def identity(job: TrialJob) -> dict[str, Any]:
        return runs._OfOneSeed(job, data, 0, seed_of_trial(job.number))._identity()

    assert identity(job_of()) == identity(job_of())
    assert identity(job_of(**change)) != identity(job_of())
    # Other cores of the same model run on the same clock.
    assert identity(job_of(device=CpuCores((1,)))) == identity(job_of())
