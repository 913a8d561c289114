"""What a miss, an error of the machine, a disturbed timing and a figure of 0 do to an answer: no
more than they say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.cut_defaults import ended
from tests.support.drawn_verifications import drawn_result, known, missed, verify_all
from tests.support.present import present
from tests.support.repeated_configurations import (
    REPEATED,
    answer,
    opened,
    run_of,
    twice_and_faster,
)
from tuner.config import Choice, StopReason
from tuner.record import Recorded
from tuner.report.study_status import status_of
from tuner.report.terminal.tables import print_status
from tuner.storage.records import TrialResult
from tuner.study.archive import Archive
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob, on_device
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.reasons import because_of_answer
from tuner.verdict.retune_cost import cost_sentence, costs
from tuner.verdict.verification_plan import plan_verification

SEEDS = 12


@pytest.fixture(scope="module")
def archive(repeated: Archive) -> Archive:
    return twice_and_faster(repeated)


def once(number: int, instead: Callable[[TrialJob], TrialResult], mql: float) -> Callable[..., Any]:
    """The same, but for one run of a trial."""
    usual = known(mql=mql)
    seen: list[TrialJob] = []

    def run(job: TrialJob) -> TrialResult:
        if job.number == number and not seen:
            seen.append(job)
            return instead(job)
        return usual(job)

    return run


def failed_by_the_machine(job: TrialJob) -> TrialResult:
    recorded = Recorded(stopped_by="error", failure="CUDA error: unspecified launch failure")
    return TrialResult(TrialState.FAIL, None, on_device(recorded, job.device))


def test_a_default_that_missed_once_still_stands_and_is_confirmed(
    archive: Archive, tmp_path: Path
) -> None:
    record, number = archive.records[0], len(archive.records)
    again = run_of(archive, record, number, present(record.values))
    again = ended(again, StopReason.EPOCH_LIMIT)
    records = (*archive.records, again)
    study = opened(dataclasses.replace(archive, records=records, budget=number + 1), tmp_path)
    assert 0 not in candidates_of(snapshot(study)), "it missed"
    found = answer(study)
    assert found.default_stands
    assert found.default_missed
    said = because_of_answer(found)
    assert ", where it converges: of its runs not all did; the nearest is" in said
    planned = plan_confirmation([study], seeds=SEEDS)
    assert (planned.new_runs, planned.missing) == (2 * SEEDS, ())


def test_a_confirmation_that_failed_and_in_which_the_default_missed_leaves_the_default(
    archive: Archive, tmp_path: Path
) -> None:
    study = opened(archive, tmp_path)
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study], once(0, missed, 0.95))
    found = confirmation_of(snapshot(study))
    assert found is not None
    assert not found.claimed
    assert answer(study).default_stands


def test_status_says_that_all_runs_of_a_confirmation_missed(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = opened(archive, tmp_path)
    plan_confirmation([study], seeds=SEEDS)
    print_status([study])
    assert "missed" not in capsys.readouterr().out, "none has run"
    verify_all([study], lambda job: (failed_by_the_machine if job.number else known(mql=0.8))(job))
    what = f"{SEEDS} of {SEEDS} runs on fresh seeds missed (error {SEEDS})"
    assert status_of(study)["all_missed"] == [{"trial": REPEATED, "what": what}]
    print_status([study])
    assert f"{study.name}: trial {REPEATED}: {what}\n" in capsys.readouterr().out


def test_status_says_it_of_a_verification_and_not_where_a_run_counts(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = opened(archive, tmp_path)
    plan_verification([study], top=4, seeds=6, choice=Choice.RECOMMENDED)
    verify_all([study], once(0, missed, 0.5))
    assert status_of(study)["all_missed"] == []
    again = opened(archive, tmp_path / "again")
    plan_verification([again], top=4, seeds=6, choice=Choice.RECOMMENDED)
    verify_all([again], missed)
    assert {0, REPEATED} <= {each["trial"] for each in status_of(again)["all_missed"]}
    print_status([again])
    assert "6 of 6 runs on fresh seeds missed (epoch limit 6); trial" in capsys.readouterr().out


def test_an_error_of_the_machine_bars_no_configuration(archive: Archive, tmp_path: Path) -> None:
    study = opened(archive, tmp_path)
    plan_verification([study], top=4, seeds=6, choice=Choice.RECOMMENDED)
    verify_all([study], once(REPEATED, failed_by_the_machine, 0.5))
    assert {0, REPEATED} <= candidates_of(snapshot(study))
    assert answer(study).chosen.trial == REPEATED


def test_a_configuration_that_missed_in_a_verification_is_barred(
    archive: Archive, tmp_path: Path
) -> None:
    study = opened(archive, tmp_path)
    plan_verification([study], top=4, seeds=6, choice=Choice.RECOMMENDED)
    verify_all([study], once(REPEATED, missed, 0.5))
    assert REPEATED not in candidates_of(snapshot(study))


def test_of_disturbed_timings_the_time_is_unknown_and_the_level_is_reached(
    archive: Archive, tmp_path: Path
) -> None:
    def disturbed(job: TrialJob) -> TrialResult:
        found = known(mql=0.79)(job)
        return dataclasses.replace(
            found, recorded=dataclasses.replace(found.recorded, contaminated=True)
        )

    study = opened(archive, tmp_path)
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study], disturbed)
    now = snapshot(study)
    confirmation = confirmation_of(now)
    assert confirmation is not None
    assert confirmation.claimed
    (level,) = registered_levels(groups_of([now]))
    ((time,),) = level.searches.values()
    assert (time.how, time.seconds) == ("unknown", None)
    assert time.why_unknown == f"too many timings of trial {REPEATED} were disturbed"
    (found,) = costs(groups_of([now]))
    assert cost_sentence(found, "few").endswith(
        "what a training saves is not known: too many timings were disturbed"
    )


def test_an_mql_of_nothing_has_no_ratio_and_everything_is_shown(
    archive: Archive, tmp_path: Path
) -> None:
    study = opened(archive, tmp_path)
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study], lambda job: drawn_result(job, mql=0.0, sd_mql=0.0))
    report = compare([snapshot(study)])
    assert report.confirmed[0].sentence.endswith(
        "on 12 untouched seeds: their MQLs have no ratio; so nothing is said of its time"
    )
    assert report.registered == ()
