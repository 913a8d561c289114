"""Device hours that studies share stay what they are, whichever of these a later launch names."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from optuna import delete_study

from tests.support.databases import SQLITE_ALONE
from tests.support.device_hours import hours_of, plan_runs
from tests.support.drawn_verifications import DEVICE, drawn_result
from tests.support.small_study import definition
from tuner.launch.crew import change_gpu_hours, note_spent, runs_unpaid
from tuner.launch.request import Notes, Quiet
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.relaunch import Said, open_studies
from tuner.trial.job import TrialJob
from tuner.verdict.verified import verifications_of
from tuner.worker.loop import Worker
from tuner.worker.process import StopFlag
from tuner.worker.trial_source import VerificationSource


@pytest.fixture
def four(database: Database) -> list[OpenStudy]:
    return [create_or_resume(database, name, definition(), trials=9) for name in "abcd"]


def limit(studies: list[OpenStudy], seconds: float | None) -> list[str]:
    notes = Notes(Quiet())
    change_gpu_hours(studies, SearchPolicy(max_gpu_s=seconds), notes)
    return notes.lines


def hours(study: OpenStudy) -> GpuHours:
    return hours_of([study])


def spend(study: OpenStudy, seconds: float) -> None:
    """As a worker does that is interrupted."""
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert hours(study).ask(claim.token, "ann") is not None
    hours(study).took(claim.token, seconds)
    study.ledger.give_back(claim)


@SQLITE_ALONE
def test_a_launch_of_one_study_forgets_nothing_that_it_shares(four: list[OpenStudy]) -> None:
    a, b, c, _ = four
    limit([a, b], 100.0)
    spend(a, 30.0)
    spend(b, 20.0)
    lines = limit([b], 120.0)
    for each in (a, b):
        assert hours(each).limit == (("a", "b"), 120.0)
        assert hours(each).spent_s() == pytest.approx(50.0)
    assert any("a" in line and "share" in line for line in lines)
    assert c.policy().max_gpu_s is None
    claim = b.ledger.claim("ben")
    assert claim is not None
    assert hours(b).ask(claim.token, "ben") == pytest.approx(70.0)
    assert hours(a).spent_s() == pytest.approx(120.0)


def test_an_older_study_that_joins_forgets_nothing(four: list[OpenStudy]) -> None:
    a, b, _, _ = four
    limit([b], 100.0)
    spend(b, 20.0)
    under_way = b.ledger.claim("ben")
    assert under_way is not None
    before = hours(b)
    assert before.ask(under_way.token, "ben") == pytest.approx(80.0)
    limit([a, b], 200.0)
    assert hours(a).spent_s() == pytest.approx(100.0)
    before.took(under_way.token, 50.0)  # its worker knows of the limit as it was
    assert hours(a).spent_s() == pytest.approx(70.0)
    spend(a, 5.0)
    assert hours(b).spent_s() == pytest.approx(75.0)


@SQLITE_ALONE
def test_two_limits_that_a_launch_brings_together_are_one(four: list[OpenStudy]) -> None:
    a, b, c, d = four
    limit([a, b], 100.0)
    limit([c, d], 100.0)
    spend(a, 10.0)
    spend(d, 20.0)
    limit([b, c], 50.0)
    for each in four:
        assert hours(each).limit == (("a", "b", "c", "d"), 50.0)
        assert hours(each).spent_s() == pytest.approx(30.0)


@SQLITE_ALONE
def test_who_lifts_a_limit_lifts_it_for_all_that_share_it(four: list[OpenStudy]) -> None:
    a, b, _, _ = four
    limit([a, b], 100.0)
    spend(a, 10.0)
    spend(b, 20.0)
    lines = limit([b], None)
    assert [each.policy().max_gpu_s for each in (a, b)] == [None, None]
    assert any("a" in line for line in lines)
    limit([b], 100.0)
    assert hours(b).limit == (("b",), 100.0)
    assert hours(b).spent_s() == pytest.approx(20.0), "what is its own stays its own"


def test_what_a_deleted_study_spent_goes_with_it_and_nothing_else(four: list[OpenStudy]) -> None:
    a, b, c, _ = four
    limit([a, b, c], 100.0)
    spend(a, 10.0)
    spend(b, 20.0)
    under_way = c.ledger.claim("cid")
    assert under_way is not None
    granted = hours(c).ask(under_way.token, "cid")
    assert granted == pytest.approx(70.0)
    delete_study(study_name="a", storage=a.database.optuna)
    assert hours(b).spent_s() == pytest.approx(90.0)
    limit([b], 110.0)
    assert hours(c).limit == (("b", "c"), 110.0)
    assert hours(c).spent_s() == pytest.approx(90.0)


@SQLITE_ALONE
def test_a_new_search_of_a_limited_group_is_paid_by_the_same_hours(database: Database) -> None:
    def searches(number: int) -> list[OpenStudy]:
        said = Said(trials=9, searches=number)
        found = open_studies(database, {"g": definition()}, said, device_model=None)
        return [each.study for each in found]

    (first,) = searches(1)
    limit([first], 100.0)
    spend(first, 10.0)
    both = searches(2)
    change_gpu_hours(both, SearchPolicy(), Notes(Quiet()))
    names = tuple(each.name for each in both)
    for each in both:
        assert hours(each).limit == (names, 100.0)
        assert hours(each).spent_s() == pytest.approx(10.0)
    third = searches(3)
    change_gpu_hours(third, SearchPolicy(), Notes(Quiet()))
    assert {hours(each).limit for each in third} == {(tuple(e.name for e in third), 100.0)}


def verified(studies: list[OpenStudy], before: Callable[[], object]) -> list[str] | None:
    """The studies of the runs that a worker made; None where it came to no end. `before` it begins
    and after it knows of its studies."""
    stop = StopFlag()
    begun: list[str] = []

    def run(job: TrialJob) -> TrialResult:
        begun.append(job.study)
        return drawn_result(job)

    worker = Worker(studies, DEVICE, run, source=VerificationSource, name="ann", stop=stop)
    before()
    thread = threading.Thread(target=worker.run)
    thread.start()
    thread.join(20.0)
    ended = not thread.is_alive()
    stop.set()
    thread.join()
    return sorted(begun) if ended else None


@SQLITE_ALONE
def test_a_worker_that_verifies_hears_of_a_limit_that_was_lowered(four: list[OpenStudy]) -> None:
    study = four[0]
    limit([study], 100.0)
    spend(study, 10.0)
    plan_runs(study, 2)
    assert verified([study], lambda: limit([study], 10.0)) == []


@SQLITE_ALONE
@pytest.mark.parametrize("first", [0, 1])
def test_a_verification_of_studies_with_limits_of_their_own_spends_each_of_them(
    four: list[OpenStudy], first: int
) -> None:
    """And of one that has none. Nobody waits, or tries again and again, for what is spent."""
    spent, paid, unlimited, _ = four
    limit([spent], 10.0)
    limit([paid], 100.0)
    for each in (spent, paid, unlimited):
        plan_runs(each, 2)
    spend(spent, 10.0)
    studies = [spent, paid, unlimited][first:] + [spent, paid, unlimited][:first]
    assert verified(studies, lambda: None) == ["b", "b", "c", "c"]
    counts = verifications_of(studies).counts()
    assert (counts.finished, counts.left, counts.lacks_hours) == (4, 0, True)
    assert runs_unpaid(studies)
    notes = Notes(Quiet())
    note_spent(studies, notes)
    (line,) = notes.lines
    assert " of a are spent" in line
