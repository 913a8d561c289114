"""A trial that goes on from a checkpoint costs shared device hours once, however many workers had
it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.claims import RESULT
from tests.support.databases import SQLITE_ALONE
from tests.support.device_hours import hours_of
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.queue.gpu_hours import GpuHours
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy
from tuner.study.transfer import restore

LIMIT_S = 1000.0


@pytest.fixture
def hours(study: OpenStudy) -> GpuHours:
    study.set_policy(SearchPolicy(sampler="random", max_gpu_s=LIMIT_S))
    return hours_of([study])


def interrupted(study: OpenStudy, hours: GpuHours, seconds: float) -> None:
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert hours.ask(claim.token, "ann") is not None
    hours.took(claim.token, seconds)
    study.ledger.give_back(claim)


def finished(study: OpenStudy, hours: GpuHours, recorded: Recorded) -> None:
    claim = study.ledger.claim("ben")
    assert claim is not None
    assert claim.trial_number == 0
    assert hours.ask(claim.token, "ben") is not None
    result = dataclasses.replace(RESULT, recorded=recorded)
    assert isinstance(result, TrialResult)
    assert study.ledger.finish(claim, result)


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("earlier", "recorded", "seconds"),
    [
        # It took 30 s, of which 28 s were in its checkpoint; then 20 s, with set-up and all.
        ([30.0], Recorded(total_s=47.0, attempt_s=21.0, cycle_s=20.0), 50.0),
        ([30.0], Recorded(total_s=47.0, attempt_s=20.0, wait_s=5.0), 47.0),
        ([30.0, 12.0], Recorded(total_s=55.0, attempt_s=20.0), 62.0),
        # Its first worker had it before there was a limit.
        ([], Recorded(total_s=47.0, attempt_s=20.0), 47.0),
        # Begun anew: nothing of what it had taken is in its result.
        ([30.0], Recorded(total_s=19.0, attempt_s=20.0), 50.0),
        # Set aside: there is no time in its result.
        ([30.0], Recorded(set_aside=True), 30.0),
    ],
)
def test_a_resumed_trial_is_counted_once(
    study: OpenStudy,
    hours: GpuHours,
    earlier: list[float],
    recorded: Recorded,
    seconds: float,
) -> None:
    for each in earlier:
        interrupted(study, hours, each)
    assert hours.spent_s() == pytest.approx(sum(earlier))
    finished(study, hours, recorded)
    assert hours.spent_s() == pytest.approx(seconds)
    afresh = hours_of([study])
    assert afresh.spent_s() == pytest.approx(seconds)


def test_a_run_that_was_interrupted_leaves_other_trials_as_they_are(
    study: OpenStudy, hours: GpuHours
) -> None:
    finished(study, hours, Recorded(total_s=10.0))
    interrupted(study, hours, 30.0)
    assert hours.spent_s() == pytest.approx(40.0)


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("earlier", "recorded", "seconds"),
    [
        ([30.0, 12.0], None, 42.0),
        ([30.0], Recorded(total_s=47.0, attempt_s=21.0, cycle_s=20.0), 50.0),
    ],
)
def test_it_counts_as_much_where_its_study_is_imported(
    study: OpenStudy,
    hours: GpuHours,
    earlier: list[float],
    recorded: Recorded | None,
    seconds: float,
    tmp_path: Path,
) -> None:
    for each in earlier:
        interrupted(study, hours, each)
    if recorded is not None:
        finished(study, hours, recorded)
    assert hours.spent_s() == pytest.approx(seconds)
    write_archive(archive_of(study), tmp_path / "study.json")
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    moved = restore(elsewhere, read_archive(tmp_path / "study.json"), study.name)
    assert hours_of([moved]).spent_s() == pytest.approx(seconds)
    # And from there, another time.
    write_archive(archive_of(moved), tmp_path / "again.json")
    again = read_archive(tmp_path / "again.json")
    assert again.without_result_s == read_archive(tmp_path / "study.json").without_result_s
    elsewhere.close()
