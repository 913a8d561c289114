"""The table of a comparison once something has been confirmed: it is of the confirming runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import delete

from tests.support.drawn_verifications import verify_all
from tests.support.planned_confirmations import SEEDS, known, opened
from tests.support.present import present
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.rows import Row
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.stats.intervals import Interval


@pytest.fixture(scope="module")
def studies(searched: Database) -> list[StudySnapshot]:
    """What is recommended of `original` is as good as its default; of `rmsnorm`, nothing ran."""
    with searched.engine.begin() as connection:
        connection.execute(delete(schema.work).where(schema.work.c.kind == "run"))
    originals = opened(searched, "demo-original", "demo-original-2")
    plan_confirmation(originals, seeds=SEEDS, margin=0.01)
    verify_all(originals, known(mql=0.8))
    names = ("demo-original-2", "demo-original", "demo-rmsnorm")
    return [snapshot(each).with_runs_read() for each in opened(searched, *names)]


def told(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.study, row.hyperparameters) for row in rows]


def test_confirmed_runs_make_the_rows_and_searches_stand_by_their_numbers(
    studies: list[StudySnapshot],
) -> None:
    report = compare(studies)
    assert told(report.rows) == [
        ("demo-original", "default"),
        ("demo-original", "retuned (confirmed)"),
        ("demo-original-2", "default"),  # of that one the default stands
        ("demo-rmsnorm", "default"),
        ("demo-rmsnorm", "retuned (knee)"),
    ]
    assert report.as_dict()["pick"] == "confirmed"
    default, retuned, *_ = report.rows
    there = present(confirmation_of(studies[1]))
    assert (default.trial, retuned.trial) == (there.frozen.default, there.trial)
    for row, of in ((default, there.default), (retuned, there.recommended)):
        verified = present(of)
        assert (row.verified, row.runs, row.search_runs) == (True, SEEDS, 1)
        assert row.figures["total_time_s"] == verified.seconds
        assert row.figures["test_mql"] == verified.mql
        assert isinstance(row.figures["epochs"], Interval)
    assert [row.verified for row in report.rows[3:]] == [False, False]
    assert retuned.verdict == "the reference"
    assert default.verdict == ""


def test_a_point_of_the_front_that_was_asked_for_stays_what_it_is(
    studies: list[StudySnapshot],
) -> None:
    report = compare(studies, pick="knee")
    assert report.as_dict()["pick"] == "knee"
    assert {row.hyperparameters for row in report.rows} == {"default", "retuned (knee)"}
    assert not any(row.verified for row in report.rows)


def test_what_was_not_shown_to_be_as_good_is_called_so(searched: Database) -> None:
    with searched.engine.begin() as connection:
        connection.execute(delete(schema.work).where(schema.work.c.kind == "run"))
    (study,) = opened(searched, "demo-original")
    plan_confirmation([study], seeds=SEEDS, margin=0.01)
    (before,) = (row for row in rows_of(searched) if row.hyperparameters != "default")
    assert before.hyperparameters == "retuned (knee)"  # nothing of it has run yet
    verify_all([study], known(mql=0.9))
    (after,) = (row for row in rows_of(searched) if row.hyperparameters != "default")
    assert after.hyperparameters == "retuned (not shown to be as good)"
    mql = after.figures["test_mql"]
    assert isinstance(mql, Interval)
    assert mql.estimate == pytest.approx(0.9, abs=0.01)


def rows_of(database: Database) -> Sequence[Row]:
    return compare([snapshot(*opened(database, "demo-original")).with_runs_read()]).rows
