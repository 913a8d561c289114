"""A trial's runs: again where a timing was contaminated, once for each seed, and what they come
to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.present import present
from tests.support.trial_jobs import job_of
from tuner.record import Recorded
from tuner.spec.membership import seed_of_trial
from tuner.storage.records import TrialResult
from tuner.training import EpochRecord
from tuner.trial import seeds_and_reruns as runs
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import cleanest, combined, run_job

Script = Sequence[TrialResult | None]


def result(
    seconds: float = 2.0,
    mql: float = 0.5,
    *,
    dirty: float = 0.0,
    state: TrialState = TrialState.COMPLETE,
    **more: Any,
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
    return TrialResult(state, values, Recorded.from_flat(attributes | more))


class Trainings:
    """Takes the place of the training: results as scripted, and what was asked for."""

    def __init__(self, script: Script) -> None:
        self._script: Iterator[TrialResult | None] = iter(script)
        self.seeds: list[int] = []
        self.stems: list[str] = []

    def __call__(
        self, definition: object, hyperparameters: object, seed: int, *_: object, **more: Any
    ) -> Any:
        self.seeds.append(seed)
        self.stems.append(more["checkpoints"].stem if more["checkpoints"] else "")
        made = next(self._script)
        if made is not None and made.recorded.epochs:
            seconds = present(made.recorded.wall_clock_s)
            more["on_epoch"](
                EpochRecord(
                    epoch=1, train_loss=0.5, val_loss=0.5, learning_rate=1e-3, elapsed_s=seconds
                )
            )
        return made and replace(made, recorded=replace(made.recorded, seed=seed))


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[TrialJob, Script], tuple[TrialResult | None, Trainings]]:
    def ran(job: TrialJob, script: Script) -> tuple[TrialResult | None, Trainings]:
        trainings = Trainings(script)
        monkeypatch.setattr(runs, "run_trial", trainings)
        monkeypatch.setattr(
            runs._OfOneSeed, "_identity", lambda self: {"trial": self.job.number, "seed": self.seed}
        )
        return run_job(job, {"0" * 64: None}), trainings  # type: ignore[dict-item]

    return ran


Run = Callable[[TrialJob, Script], tuple[TrialResult | None, Trainings]]


def test_a_clean_run_is_made_once(run: Run) -> None:
    done, trainings = run(job_of(), [result(2.0)])
    assert done is not None
    assert done.values == (2.0, 0.5)
    assert "timings" not in done.recorded.to_flat()
    assert trainings.seeds == [seed_of_trial(4, root=None)]


def test_a_contaminated_run_is_made_again_with_the_same_seed_and_the_clean_time_counts(
    run: Run,
) -> None:
    done, trainings = run(job_of(), [result(3.0, dirty=0.4), result(2.0)])
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4, root=None)] * 2
    assert (done.values, done.recorded.contaminated) == ((2.0, 0.5), False)
    assert [(t["wall_clock_s"], t["contaminated"]) for t in present(done.recorded.timings)] == [
        (3.0, True),
        (2.0, False),
    ]


def test_where_every_run_was_contaminated_the_cleanest_counts_and_says_so(run: Run) -> None:
    script = [result(3.0, dirty=0.2), result(2.0, dirty=0.4), result(2.5, dirty=0.3)]
    done, trainings = run(job_of(reruns=2), script)
    assert done is not None
    assert len(trainings.seeds) == 3
    assert (done.values, done.recorded.contaminated) == ((3.0, 0.5), True)
    assert len(present(done.recorded.timings)) == 3


def test_the_curve_that_stays_is_that_of_the_run_that_counts(run: Run) -> None:
    told: list[float] = []

    def on_epoch(record: EpochRecord, repeat: int) -> None:
        del repeat
        told.append(record.elapsed_s)

    def on_curve(records: Sequence[EpochRecord], repeat: int) -> None:
        assert repeat == 0
        told.extend(record.elapsed_s for record in records)

    job = job_of(reruns=1, on_epoch=on_epoch, on_curve=on_curve)
    run(job, [result(3.0, dirty=0.2), result(4.0, dirty=0.4)])
    assert told == [3.0, 4.0, 3.0]
    told.clear()
    run(job, [result(3.0, dirty=0.4), result(4.0, dirty=0.2)])
    assert told == [3.0, 4.0]


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
    script = [
        result(3.0, 0.5, epochs=7),
        result(9.0, 0.4, epochs=20, peak_memory_bytes=30),
        result(4.0, 0.7, epochs=8),
    ]
    done, trainings = run(job_of(seeds=3), script)
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4, repeat, root=None) for repeat in range(3)]
    assert done.values == (4.0, 0.5)
    a = done.recorded
    assert (a.wall_clock_s, a.test_mql, a.epochs, a.peak_memory_bytes) == (
        4.0,
        0.5,
        8,
        30,
    )
    assert (a.seed, a.converged, a.stopped_by) == (seed_of_trial(4, root=None), True, "converged")
    assert [(r["seed"], r["wall_clock_s"], r["epochs"]) for r in present(a.runs)] == [
        (seed_of_trial(4, repeat, root=None), seconds, epochs)
        for repeat, (seconds, epochs) in enumerate([(3.0, 7), (9.0, 20), (4.0, 8)])
    ]


def test_a_seed_that_does_not_complete_is_the_trials_outcome_and_the_rest_are_not_run(
    run: Run,
) -> None:
    diverged = result(
        1.0, state=TrialState.FAIL, stopped_by="diverged", converged=False, failure="nan in epoch 2"
    )
    done, trainings = run(job_of(seeds=3), [result(), diverged])
    assert done is not None
    assert len(trainings.seeds) == 2
    assert (done.state, done.values, done.recorded.failure) == (
        TrialState.FAIL,
        None,
        "nan in epoch 2",
    )
    assert [r["stopped_by"] for r in present(done.recorded.runs)] == ["converged", "diverged"]


def test_a_seed_that_a_limit_cut_makes_the_trial_one_that_did_not_converge() -> None:
    cut = result(9.0, stopped_by="epoch_limit", converged=False)
    done = combined([result(2.0), cut, result(3.0)], 3)
    assert (done.state, done.values) == (TrialState.COMPLETE, (3.0, 0.5))
    assert (done.recorded.converged, done.recorded.stopped_by) == (False, "epoch_limit")


def test_one_contaminated_seed_contaminates_the_median() -> None:
    done = combined([result(2.0), result(3.0, dirty=0.3), result(4.0)], 3)
    assert (done.recorded.contaminated, done.recorded.contamination) == (
        True,
        "others used 30%",
    )


def test_what_an_earlier_attempt_finished_is_not_run_again(run: Run, tmp_path: Path) -> None:
    job = job_of(seeds=2, folder=tmp_path)
    assert run(job, [result(3.0, dirty=0.4), None])[0] is None
    assert run(job, [result(2.0), None])[0] is None
    done, trainings = run(job, [result(5.0)])
    assert done is not None
    assert trainings.seeds == [seed_of_trial(4, 1, root=None)]
    assert done.values == (3.5, 0.5)
    assert len(present(done.recorded.runs)[0]["timings"]) == 2


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
        assert trainings.seeds == [seed_of_trial(4, 0, root=None)], spoiled
    assert caplog.text.count("are not used") == 4


def test_each_run_has_checkpoints_of_its_own(run: Run, tmp_path: Path) -> None:
    _, trainings = run(job_of(seeds=2, folder=tmp_path), [result(dirty=0.5), result(), result()])
    assert trainings.stems == [
        f"trial-000004-seed-{s}-run-{r}" for s, r in ((0, 0), (0, 1), (1, 0))
    ]
    _, trainings = run(job_of(seeds=2, folder=tmp_path, seed=99), [result()])
    assert trainings.stems == ["verify-000004-seed-99-run-0"]
    assert trainings.seeds == [99]


def test_a_clean_run_beats_a_faster_contaminated_one() -> None:
    assert cleanest([result(1.0, dirty=0.5), result(2.0)]).values == (2.0, 0.5)
