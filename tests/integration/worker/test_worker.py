"""A worker in this process, with trials that only pretend to train: what it is told, records and
leaves behind."""

from __future__ import annotations

import contextlib
import time
import types
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.in_process_worker import DEVICE, epoch, result_of, three_epochs, work
from tests.support.small_study import definition
from tuner.config import StopReason
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.relaunch import change_policy
from tuner.study.results import read_results
from tuner.trial.job import TrialJob
from tuner.worker import trial_source
from tuner.worker.loop import Worker
from tuner.worker.process import ContextLostError, StopFlag


def test_a_trial_is_told_all_it_needs_and_its_curve_is_stored(
    opened: OpenStudy, tmp_path: Path
) -> None:
    jobs: list[TrialJob] = []

    def run(job: TrialJob) -> TrialResult:
        jobs.append(job)
        return three_epochs(job)

    work(opened, run, tmp_path)
    assert [job.number for job in jobs] == [0, 1]
    assert jobs[0].hyperparameters == opened.definition.defaults
    assert jobs[0].study_key == opened.key()
    assert jobs[0].checkpoints is not None
    assert jobs[0].checkpoints.parent == tmp_path / "checkpoints"
    assert [row.epoch for row in opened.epochs.of_trial(1)] == [1, 2, 3]
    assert [trial.user_attrs["attempts"] for trial in opened.optuna.trials] == [1, 1]
    assert list((tmp_path / "outbox").iterdir()) == []


def test_a_worker_follows_a_later_launch_with_its_next_trial(opened: OpenStudy) -> None:
    told: list[tuple[int, float | None]] = []

    def run(job: TrialJob) -> TrialResult:
        told.append((job.policy.reruns, job.policy.max_time_s))
        change_policy(opened, {"reruns": 4, "max_time_s": 1e-9})  # as another launch does meanwhile
        return result_of(job)

    work(opened, run)
    assert told == [(1, None), (4, 1e-9)]
    assert not any(
        record.feasible for record in read_results(opened).complete
    )  # the first is judged anew, too


def test_a_workers_time_between_two_trainings_is_recorded_with_the_second(
    opened: OpenStudy,
) -> None:
    spent: list[float] = []

    def run(job: TrialJob) -> TrialResult:
        began = time.perf_counter()
        time.sleep(0.02)
        done = result_of(job)
        spent.append(time.perf_counter() - began)
        return done

    work(opened, run)
    first, second = (trial.user_attrs for trial in opened.optuna.trials)
    assert not {"cycle_s", "turnover_s"} & first.keys()
    assert second["turnover_s"] > 0
    assert second["turnover_s"] + second["suggest_s"] + spent[1] <= second["cycle_s"]


def test_who_is_refused_by_one_study_is_at_work_on_no_other(opened: OpenStudy) -> None:
    other = create_or_resume(opened.database, "other", definition(), trials=1)
    other.bind_device_model("another model")
    with pytest.raises(UsageError, match="another model"):
        Worker([opened, other], DEVICE, result_of, name="ann").run()
    assert opened.roster.working() == ()


def test_what_a_lost_trial_took_is_not_counted_with_the_next_one(
    opened: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(trial_source, "time", types.SimpleNamespace(perf_counter=lambda: clock.now))
    lengths = iter([5.0, 1000.0, 7.0])

    def run(job: TrialJob) -> TrialResult | None:
        clock.now += (length := next(lengths))
        if length != 1000.0:
            return result_of(job)
        opened.ledger.reap(worker="ann")  # as when its lease ran out
        return None

    work(opened, run)
    second = opened.optuna.trials[1].user_attrs
    assert (second["attempts"], second["cycle_s"], second["turnover_s"]) == (2, 7.0, 0.0)


def test_a_trial_handed_back_is_run_again_with_its_earlier_epochs(
    opened: OpenStudy, tmp_path: Path
) -> None:
    stop = StopFlag()

    def interrupted(job: TrialJob) -> None:
        job.on_epoch(epoch(1), 0)
        stop.set()
        assert job.should_stop() is StopReason.INTERRUPTED

    Worker([opened], DEVICE, interrupted, name="ann", stop=stop).run()

    def resumed(job: TrialJob) -> TrialResult:
        if job.number == 0:
            job.on_curve([epoch(1)], 0)
        job.on_epoch(epoch(2), 0)
        return result_of(job)

    work(opened, resumed)
    assert [row.epoch for row in opened.epochs.of_trial(0)] == [1, 2]
    assert [trial.user_attrs["attempts"] for trial in opened.optuna.trials] == [2, 1]


def test_a_run_made_again_takes_the_place_of_the_first_ones_curve(opened: OpenStudy) -> None:
    def twice(job: TrialJob) -> TrialResult:
        for attempt in (0, 10):
            for number in (1, 2):
                job.on_epoch(epoch(number, elapsed_s=attempt + number), 0)
        return result_of(job)

    work(opened, twice)
    assert [(row.epoch, row.elapsed_s) for row in opened.epochs.of_trial(0)] == [
        (1, 11.0),
        (2, 12.0),
    ]


def test_checkpoints_go_when_their_trial_is_finished(opened: OpenStudy, tmp_path: Path) -> None:
    def run(job: TrialJob) -> TrialResult:
        assert job.checkpoints is not None
        job.checkpoints.mkdir(parents=True, exist_ok=True)
        # Of this trial, and of one that a worker left behind when it died after the result was
        # stored.
        for number in (job.number, 7):
            (job.checkpoints / f"trial-{number:06d}-seed-0-run-0-epoch-000003.safetensors").touch()
        return result_of(job)

    work(opened, run, tmp_path)
    (folder,) = (tmp_path / "checkpoints").iterdir()
    assert [path.name[:12] for path in folder.iterdir()] == ["trial-000007"]
    (folder / "trial-000001-seed-0-run-0-epoch-000003.safetensors").touch()
    opened.ledger.set_budget(3)
    work(opened, result_of, tmp_path)
    assert [path.name[:12] for path in folder.iterdir()] == ["trial-000007"]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (
            RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ..."),
            True,
        ),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"), True),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm"), True),
        (type("AcceleratorError", (RuntimeError,), {})("device-side failure"), True),
        (ValueError("a CUDA tensor of the wrong shape"), False),
        (SystemExit("enough of it"), False),
        (KeyboardInterrupt("no signal"), False),
    ],
)
def test_a_failure_is_the_trials_result_and_a_lost_context_ends_the_process(
    opened: OpenStudy, error: BaseException, lost: bool
) -> None:
    def fail(job: TrialJob) -> TrialResult:
        raise error

    with pytest.raises(ContextLostError) if lost else contextlib.nullcontext():
        work(opened, fail)
    trials = opened.optuna.get_trials(deepcopy=False, states=[TrialState.FAIL])
    assert len(trials) == (1 if lost else 2)
    said = f"{type(error).__name__}: {error}"
    assert trials[0].user_attrs["failure"].endswith(" ".join(said.split()))
    assert opened.ledger.counts().running == 0


def test_a_result_that_lost_the_context_counts_and_ends_the_process(opened: OpenStudy) -> None:
    """Memory ran out in the middle of a capture."""

    def run(job: TrialJob) -> TrialResult:
        ended = Recorded(
            stopped_by="out_of_memory",
            failure="out of memory",
            context_lost=job.number == 1,
        )
        return TrialResult(TrialState.FAIL, None, ended)

    with pytest.raises(ContextLostError, match="out of memory") as lost:
        work(opened, run)
    assert lost.value.results == 1
    assert [trial.user_attrs["stopped_by"] for trial in opened.optuna.trials] == [
        "out_of_memory"
    ] * 2
