"""A budget in time is exact: no trial and no run begins once what has ended had its devices for
so long, whoever made what ready before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.claims import trial_states
from tests.support.drawn_verifications import DEVICE as EXAMPLE
from tests.support.drawn_verifications import drawn_result
from tests.support.in_process_worker import DEVICE, result_of
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.records import TrialResult, device_seconds
from tuner.study.open import OpenStudy
from tuner.trial.job import TrialJob
from tuner.verdict.round_allowances import ALLOWANCE
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.verification_source import VerificationSource


@pytest.mark.parametrize(
    ("recorded", "seconds"),
    [
        (Recorded(), 0.0),
        (Recorded(wall_clock_s=2.0), 2.0),
        (Recorded(wall_clock_s=2.0, total_s=2.5), 2.5),
        (Recorded(total_s=2.5, attempt_s=2.75), 2.75),
        (Recorded(total_s=2.5, attempt_s=2.75, cycle_s=3.0), 3.0),
        # Another launch had the device for the most of it.
        (Recorded(total_s=2.5, attempt_s=12.75, cycle_s=13.0, wait_s=10.0), 3.0),
        # It went on from a checkpoint: the attempt is the end of it.
        (Recorded(total_s=9.0, attempt_s=1.0), 9.0),
        # A run of a verification says what it was repeated for.
        (
            Recorded(
                wall_clock_s=2.0,
                total_s=2.5,
                timings=[{"wall_clock_s": 4.0}, {"wall_clock_s": 2.0}],
            ),
            6.5,
        ),
    ],
)
def test_a_piece_of_work_costs_what_it_held_its_device_for(
    recorded: Recorded, seconds: float
) -> None:
    assert device_seconds(recorded) == pytest.approx(seconds)


def of_ten_seconds(job: TrialJob) -> TrialResult:
    result = result_of(job)
    return replace(result, recorded=replace(result.recorded, total_s=10.0))


@pytest.mark.parametrize(("may_take_s", "trials"), [(25.0, 3), (30.0, 3), (30.5, 4), (500.0, 6)])
@pytest.mark.parametrize("lanes", [1, 2])
def test_no_trial_begins_once_the_time_of_its_search_is_spent(
    study: OpenStudy, may_take_s: float, trials: int, lanes: int
) -> None:
    study.ledger.set_budget(6)
    study.set_policy(SearchPolicy(sampler="random", search_s=may_take_s))
    begun: list[int] = []

    def run(job: TrialJob) -> TrialResult:
        begun.append(job.number)
        return of_ten_seconds(job)

    with pytest.MonkeyPatch.context() as patch:  # as if they had taken as long as they say
        patch.setattr("tuner.worker.trial_source.TrialTimes.took_s", 10.0)
        Worker([study], DEVICE, run, name="ann", lanes=lanes).run()
    assert begun == list(range(trials))
    counts = study.ledger.counts()
    assert (counts.finished, counts.running, counts.left) == (trials, 0, 0)
    assert study.ledger.spent_s() == pytest.approx(10.0 * trials, rel=1e-3)
    assert counts.time_is_up == (trials < 6)
    assert study.ledger.claim("ann") is None
    assert set(trial_states(study)) <= {"COMPLETE", "WAITING"}
    # More time, and it goes on exactly where it was.
    study.set_policy(SearchPolicy(sampler="random"))
    Worker([study], DEVICE, of_ten_seconds, name="ben").run()
    assert study.ledger.counts().finished == 6
    assert trial_states(study) == ["COMPLETE"] * 6


def test_runs_that_have_no_time_left_are_taken_off_the_plan(study: OpenStudy) -> None:
    runs = [
        PlannedRun(
            study_id=study.study_id,
            trial_number=0,
            block=seed,
            session="s" if seed < 5 else "t",
            plan={"looks": []} | ({ALLOWANCE: 20.5} if seed < 5 else {}),
            seed=seed,
            place=seed,
            params=study.definition.defaults.as_dict(),
        )
        for seed in range(7)
    ]
    queue = verifications_of([study])
    queue.add(runs)

    def run(job: TrialJob) -> TrialResult:
        result = drawn_result(job)
        return replace(result, recorded=replace(result.recorded, wall_clock_s=10.0, total_s=10.0))

    for name in ("ann", "ben"):  # the second one finds nothing to do
        Worker([study], EXAMPLE, run, sources=(VerificationSource,), name=name).run()
    assert [each.state for each in queue.runs()] == ["finished"] * 3 + ["skipped"] * 2 + [
        "finished"
    ] * 2
    assert queue.spent_s("s") == pytest.approx(30.0)
    assert queue.counts().left == 0
