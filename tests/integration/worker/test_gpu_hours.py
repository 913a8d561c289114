"""Device hours that several studies share are never exceeded, whoever works, and whatever dies."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.device_hours import hours_of, plan_runs
from tests.support.in_process_worker import DEVICE, result_of
from tests.support.small_study import definition
from tuner.config import StopReason
from tuner.devices import CpuCores
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult, device_seconds
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.results import read_results
from tuner.trial.job import TrialJob
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.trial_source import VerificationSource

EPOCH_S = 0.1


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[OpenStudy]]:
    """Two studies of forty trials that share 2.4 s of devices."""
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    studies = [create_or_resume(database, name, definition(), trials=40) for name in ("a", "b")]
    policy = SearchPolicy(sampler="random", prune=False, max_gpu_s=2.4, gpu_shared=("a", "b"))
    for each in studies:
        each.set_policy(policy)
    yield studies
    database.close()


def trained(job: TrialJob) -> TrialResult | None:
    """Five epochs, or as many as its device hours allow: as `fit` does it, on a real clock."""
    began = time.perf_counter()
    for _ in range(5):
        until = time.perf_counter() + EPOCH_S
        while time.perf_counter() < until:
            time.sleep(0.002)
            if job.should_stop() is not None:
                return None
        took = time.perf_counter() - began
        if job.may_take_s is not None and took + EPOCH_S > job.may_take_s:
            return with_seconds(job, time.perf_counter() - began, StopReason.TIME_LIMIT)
    return with_seconds(job, time.perf_counter() - began, StopReason.CONVERGED)


def with_seconds(job: TrialJob, seconds: float, why: StopReason) -> TrialResult:
    result = result_of(job)
    recorded = dataclasses.replace(
        result.recorded, wall_clock_s=seconds, total_s=seconds, stopped_by=why.value
    )
    return dataclasses.replace(result, recorded=recorded)


def work(studies: list[OpenStudy], names: tuple[str, ...], **more: object) -> None:
    workers = [
        Worker(studies, DEVICE, trained, name=name, **more)  # type: ignore[arg-type]
        for name in names
    ]
    threads = [threading.Thread(target=each.run) for each in workers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def test_two_devices_that_train_together_spend_the_limit_twice_as_fast(
    two: list[OpenStudy],
) -> None:
    granted: list[float] = []

    def noted(job: TrialJob) -> TrialResult | None:
        granted.append(job.may_take_s or 0.0)
        result = trained(job)
        return None if result is None else result.noting(devices=2)

    Worker(two, CpuCores((0, 1), parts=2), noted, name="ann").run()
    assert 1.0 < granted[0] <= 1.2, "half of the 2.4 s, on each of two"
    assert hours_of(two).spent_s() <= 2.4 + 2 * EPOCH_S
    taken_s = [
        device_seconds(record.recorded) for each in two for record in read_results(each).records
    ]
    assert sum(taken_s) == pytest.approx(hours_of(two).spent_s(), abs=0.1)


@pytest.mark.parametrize("lanes", [1, 2])
def test_two_workers_never_spend_more_than_the_limit_by_an_epoch(
    two: list[OpenStudy], lanes: int
) -> None:
    work(two, ("ann", "ben"), lanes=lanes)
    spent = sum(each.ledger.spent_s() for each in two)
    assert 1.0 < spent <= 2.4 + EPOCH_S
    counts = [each.ledger.counts() for each in two]
    assert all(each.unpaid and not each.left for each in counts)
    assert 0 < sum(each.finished for each in counts) < 10  # a trial takes half a second
    # Nothing more begins: not here, not with another worker, until more is allowed.
    work(two, ("cid",))
    assert sum(each.ledger.spent_s() for each in two) == pytest.approx(spent)
    for each in two:
        each.set_policy(each.policy().but(max_gpu_s=3.6))
    work(two, ("dan",))
    assert spent < sum(each.ledger.spent_s() for each in two) <= 3.6 + EPOCH_S


def test_a_trial_under_way_at_the_limit_keeps_its_result(two: list[OpenStudy]) -> None:
    for each in two:
        each.set_policy(each.policy().but(max_gpu_s=0.3))
    work(two, ("ann",))
    (attempt,) = two[0].ledger.attempts(0)
    assert attempt.result is not None
    assert attempt.result.recorded.stopped_by == "time_limit"
    assert (attempt.result.recorded.total_s or 1.0) <= 0.3 + EPOCH_S


def test_what_a_dead_worker_may_have_had_counts(
    two: list[OpenStudy],
) -> None:
    hours = hours_of(two)
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    granted = hours.ask(claim.token, "ann")
    assert granted == pytest.approx(2.4)
    assert hours.spent_s() == pytest.approx(2.4)
    assert two[0].ledger.renew(claim, 0.05)  # the last that was heard of it
    two[0].ledger.reap(worker="ann", state="lost")
    assert hours.spent_s() == pytest.approx(0.05)
    other = two[1].ledger.claim("ben")
    assert other is not None
    granted = hours.ask(other.token, "ben")
    assert granted is not None
    assert granted <= 2.35
    assert hours.spent_s() == pytest.approx(2.4)


def test_what_was_handed_back_counts_with_what_it_took(two: list[OpenStudy]) -> None:
    hours = hours_of(two)
    claim = two[0].ledger.claim("ann")
    assert claim is not None
    assert hours.ask(claim.token, "ann") is not None
    hours.took(claim.token, 0.3)
    two[0].ledger.give_back(claim)
    assert hours.spent_s() == pytest.approx(0.3)
    again = two[0].ledger.claim("ben")
    assert again is not None
    assert hours.ask(again.token, "ben") == pytest.approx(2.1)


def test_a_verification_run_at_the_limit_is_handed_back_without_a_result(
    two: list[OpenStudy],
) -> None:
    for each in two:
        each.set_policy(each.policy().but(max_gpu_s=0.75))
    queue = verifications_of(two)
    plan_runs(two[0], 4)
    work(two, ("ann",), source=VerificationSource)
    assert [each.state for each in queue.runs()] == ["finished", "waiting", "waiting", "waiting"]
    assert hours_of(two).spent_s() <= 0.75 + EPOCH_S
    assert queue.counts().left == 0


def test_what_somebody_else_wrote_in_place_of_the_grants_counts_as_nothing(
    two: list[OpenStudy],
) -> None:
    two[0].optuna.set_user_attr("tuner_gpu_hours", {"grants": [1], "spent": "much"})
    assert hours_of(two).spent_s() == 0.0
