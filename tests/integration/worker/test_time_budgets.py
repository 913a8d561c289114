"""A budget in time is exact: no trial and no run begins once what has ended had its devices for
so long, whoever made what ready before."""

from __future__ import annotations

import math
from dataclasses import replace
from unittest.mock import Mock

import pytest
from sqlalchemy.exc import OperationalError

from tests.support.claims import trial_states
from tests.support.databases import SQLITE_ALONE
from tests.support.drawn_verifications import DEVICE as EXAMPLE
from tests.support.drawn_verifications import drawn_result
from tests.support.in_process_worker import DEVICE, result_of
from tuner.record import Recorded
from tuner.search import next_run
from tuner.search.beginning import Beginning
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.records import TrialResult, device_seconds
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.compare.registered import given_up_after
from tuner.verdict.round_allowances import ALLOWANCE
from tuner.verdict.verified import verifications_of
from tuner.worker import trial_source
from tuner.worker.loop import Worker
from tuner.worker.trial_source import VerificationSource

TRIALS = 18


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
        # Two devices trained it together.
        (Recorded(total_s=2.5, attempt_s=2.75, devices=2), 5.5),
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


@SQLITE_ALONE
@pytest.mark.parametrize(("may_take_s", "trials"), [(30.0, 3), (30.5, 4)])
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
        had = "tuner.worker.work_source.Piece.had_s"
        patch.setattr(had, lambda piece: 0.0 if piece._since is None else 10.0)
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
        Worker([study], EXAMPLE, run, source=VerificationSource, name=name).run()
    assert [each.state for each in queue.runs()] == ["finished"] * 3 + ["skipped"] * 2 + [
        "finished"
    ] * 2
    assert queue.spent_s("s") == pytest.approx(30.0)
    assert queue.counts().left == 0


@SQLITE_ALONE
def test_a_capped_training_ends_at_so_many_times_the_default(study: OpenStudy) -> None:
    study.ledger.set_budget(12)
    study.set_policy(SearchPolicy(sampler="random", cap=1.5))
    default = study.definition.defaults.as_dict()
    for _ in range(3):  # beside the one that is there from the beginning
        study.enqueue(default)
    limits: list[float | None] = []
    times = iter((2.0, 4.0, 3.0, 9.0, *[1.0] * 8))

    def run(job: TrialJob) -> TrialResult:
        limits.append(job.definition.training.time_limit_s)
        result, seconds = result_of(job), next(times)
        recorded = replace(result.recorded, wall_clock_s=seconds, converged=seconds < 9.0)
        return replace(result, recorded=recorded)

    Worker([study], DEVICE, run, name="ann").run()
    assert limits[:4] == [None] * 4, "runs of the default are never capped"
    # 1.5 times the median of 2, 4 and 3 s: the run that did not converge does not count.
    assert limits[4:] == [4.5] * 5 + [None] + [4.5] * 2, "every tenth goes to its end"
    assert study.definition.training.time_limit_s is None


@SQLITE_ALONE
def test_there_is_no_cap_where_the_default_never_converged(study: OpenStudy) -> None:
    study.ledger.set_budget(6)
    study.set_policy(SearchPolicy(sampler="random", cap=1.5))
    for _ in range(3):
        study.enqueue(study.definition.defaults.as_dict())
    limits: list[float | None] = []

    def run(job: TrialJob) -> TrialResult:
        limits.append(job.definition.training.time_limit_s)
        result = result_of(job)
        cut = replace(result.recorded, stopped_by="epoch_limit", converged=False)
        return replace(result, recorded=cut)

    Worker([study], DEVICE, run, name="ann").run()
    assert limits == [None] * 6


@SQLITE_ALONE
def test_a_cap_needs_three_times_of_the_default_and_a_database(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.ledger.set_budget(5)
    policy = SearchPolicy(sampler="random", cap=1.5)
    study.set_policy(policy)
    for _ in range(3):
        study.enqueue(study.definition.defaults.as_dict())
    times = iter((2.0, None, 0.0, 4.0, 1.0))

    def run(job: TrialJob) -> TrialResult:
        assert job.definition == study.definition, "a damaged time says nothing of the default"
        result = result_of(job)
        return replace(result, recorded=replace(result.recorded, wall_clock_s=next(times)))

    Worker([study], DEVICE, run, name="ann").run()
    (*_, last) = study.optuna.get_trials()
    monkeypatch.setattr(trial_source, "LEAST_DEFAULTS", 2)
    limited = trial_source.capped(study, [study], last, policy)
    assert limited.training.time_limit_s == pytest.approx(4.5)
    away = OperationalError("", None, Exception())
    monkeypatch.setattr(trial_source, "_usual_s", Mock(side_effect=away))
    assert trial_source.capped(study, [study], last, policy) == study.definition


@SQLITE_ALONE
def test_a_search_is_asked_for_the_level_of_what_it_is_held_against(study: OpenStudy) -> None:
    study.ledger.set_budget(4)
    for _ in range(3):
        study.enqueue(study.definition.defaults.as_dict())
    mqls = iter((0.80, 0.82, 0.81, 0.90))

    def run(job: TrialJob) -> TrialResult:
        result, mql = result_of(job), next(mqls)
        recorded = replace(result.recorded, converged=mql < 0.9)
        return replace(result, values=(2.0, mql), recorded=recorded)

    Worker([study], DEVICE, run, name="ann").run()
    group = study.membership.group
    other = Mock(membership=Mock(group="other"), database=study.database)
    policy = SearchPolicy(against=group, margin=0.02)
    for together in ([study], []):  # where another launch trains the reference, it is read
        asked = trial_source.Levels(together).asked(other, policy)
        assert asked == pytest.approx(math.log(1.02 * 0.81)), "what did not converge counts nothing"
    assert trial_source.Levels([study]).asked(study, policy) is None, "it is its own group"
    assert trial_source.Levels([study]).asked(other, SearchPolicy()) is None
    assert trial_source.Levels([]).asked(other, SearchPolicy(against="nobody")) is None


@SQLITE_ALONE
def test_when_a_search_gave_a_level_up_stands_with_its_trials(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_run, "FOR_ANOTHERS", 1.0)
    monkeypatch.setattr(Beginning, "at", lambda *_: None)
    levels = Mock(side_effect=lambda *_: math.log(0.8 if len(begun) < TRIALS - 2 else 0.6))
    monkeypatch.setattr(trial_source.Levels, "asked", levels)
    begun: list[int] = []

    def run(job: TrialJob) -> TrialResult:
        begun.append(job.number)
        return drawn_result(job)

    study.ledger.set_budget(TRIALS)
    study.enqueue(study.definition.defaults.as_dict())
    Worker([study], EXAMPLE, run, name="ann").run()
    now = snapshot(study)
    for_anothers = [record.recorded.for_anothers for record in now.results.records]
    assert for_anothers[0] is None, "it begins without a level"
    assert for_anothers[-3:] == [True, False, False]
    assert given_up_after(now) == TRIALS - 2
