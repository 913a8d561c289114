"""A default that the study's limit of epochs cuts off: what one has within that limit is what
others are held against, and every sentence says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.cut_defaults import ended, faster, with_default
from tests.support.drawn_verifications import drawn_result, missed, verify_all
from tests.support.present import present
from tests.support.repeated_configurations import (
    REPEATED,
    answer,
    opened,
    run_of,
    twice_and_faster,
    with_runs,
)
from tuner.config import StopReason
from tuner.report.comparison_files import sections_of
from tuner.report.figures.confirmed_figure import confirmed_series, first_level
from tuner.report.terminal.comparison import print_report
from tuner.storage.records import TrialResult
from tuner.study.archive import Archive, archive_of
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import combined
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.registered import groups_of, registered_levels
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.known_runs import candidates_of, default_is_cut, default_of, runs_of
from tuner.verdict.reasons import because_of_answer, confirmed_lines
from tuner.verdict.retune_cost import epochs_of
from tuner.verdict.same_quality import answer_of

SEEDS = 12


@pytest.fixture(scope="module")
def converging(repeated: Archive) -> Archive:
    return twice_and_faster(repeated)


@pytest.fixture(scope="module")
def cut(converging: Archive) -> Archive:
    return with_default(converging, StopReason.EPOCH_LIMIT)


def test_others_are_held_against_what_its_limit_leaves_of_the_default(
    cut: Archive, converging: Archive, tmp_path: Path
) -> None:
    study = opened(cut, tmp_path)
    now = snapshot(study)
    assert default_is_cut(now)
    assert default_of(now) == 0
    (mine,) = [run for run in runs_of(now) if run.trial == 0]
    assert (mine.seconds, mine.mql) == present(converging.records[0].values)
    assert 0 not in candidates_of(now), "what is cut off is never recommended for itself"
    found = answer(study)
    assert (found.default_stands, found.default_missed) == (True, False), "nothing ran five times"
    limit = now.definition.training.max_epochs
    assert found.cut_at == limit
    assert (
        f"Expected of the default as its limit of {limit} epochs leaves it: "
    ) in because_of_answer(found)


def test_what_is_recommended_is_told_beside_a_default_that_is_cut_off(
    cut: Archive, tmp_path: Path
) -> None:
    often = with_runs(cut, [(0.1 + each / 100, 0.5) for each in range(6)])
    found = answer(opened(often, tmp_path))
    assert found.chosen.trial == REPEATED
    said = because_of_answer(found)
    assert f"; of its default, trial 0 as its limit of {found.cut_at} epochs leaves it: " in said


def test_the_same_study_says_nothing_of_it_where_the_default_converges(
    converging: Archive, tmp_path: Path
) -> None:
    found = answer(opened(converging, tmp_path))
    assert found.cut_at is None
    assert "limit" not in because_of_answer(found)


def test_a_default_that_a_time_limit_ended_is_no_reference(
    converging: Archive, tmp_path: Path
) -> None:
    """Where that falls is an accident of the machine."""
    study = opened(with_default(converging, StopReason.TIME_LIMIT), tmp_path)
    found = answer_of(snapshot(study))
    assert isinstance(found, str)
    assert "has no run that converged, or that its limit of epochs cut off" in found


def test_once_a_run_of_the_default_converges_what_was_cut_off_is_a_miss(
    cut: Archive, tmp_path: Path
) -> None:
    first, number = cut.records[0], len(cut.records)
    again = run_of(cut, first, number, present(first.values))
    converged = dataclasses.replace(again.recorded, converged=True, stopped_by=StopReason.CONVERGED)
    again = dataclasses.replace(again, recorded=converged)
    records = (*cut.records, again)
    study = opened(dataclasses.replace(cut, records=records, budget=number + 1), tmp_path)
    now = snapshot(study)
    assert not default_is_cut(now)
    assert [run.trial for run in runs_of(now) if run.trial in (0, number)] == [number]


def confirmed(study: OpenStudy, run: Any = faster) -> dict[str, Any]:
    planned = plan_confirmation([study], seeds=SEEDS)
    assert (planned.new_runs, planned.missing) == (2 * SEEDS, ())
    verify_all([study], run)
    return present(confirmation_of(snapshot(study))).as_dict()


@pytest.fixture(scope="module")
def shown(cut: Archive, tmp_path_factory: pytest.TempPathFactory) -> OpenStudy:
    """A study whose recommendation is confirmed."""
    study = opened(cut, tmp_path_factory.mktemp("shown"))
    confirmed(study)
    return study


def test_a_confirmation_tests_against_it_and_says_so(shown: OpenStudy) -> None:
    study = shown
    told = present(confirmation_of(snapshot(study))).as_dict()
    assert told["test"]["no_worse"] is True
    assert told["test"]["missed"] == [0, 0]
    assert 0.2 < told["test"]["time_ratio"]["estimate"] < 0.3
    default = told["default"]["verified"]
    assert (default["seeds"], default["converged"], default["cut_off"]) == (SEEDS, 0, SEEDS)
    (said,) = confirmed_lines(snapshot(study))
    assert (
        f"trial {REPEATED} is no worse than the default, which its limit of epochs cut off, by "
        "more than 1 % (MQL 0.9"
    ) in said
    assert "of its time until then, on 12 untouched seeds" in said
    assert answer(study).confirmed


def test_seeds_on_which_it_converges_count_beside_the_others(cut: Archive, tmp_path: Path) -> None:
    converged: list[TrialJob] = []

    def some(job: TrialJob) -> TrialResult:
        if job.number == 0 and len(converged) < 4:
            converged.append(job)
            return drawn_result(job, seconds=9.0, mql=0.8)
        return faster(job)

    study = opened(cut, tmp_path)
    told = confirmed(study, some)
    assert told["default"]["verified"]["converged"] == 4
    assert told["default"]["verified"]["cut_off"] == SEEDS - 4
    assert told["test"]["no_worse"] is True
    (said,) = confirmed_lines(snapshot(study))
    assert "which its limit of epochs cut off in 8 of the 12 runs that count, by more than" in said


def test_what_is_recommended_may_not_be_cut_off_itself(cut: Archive, tmp_path: Path) -> None:
    study = opened(cut, tmp_path)
    told = confirmed(study, lambda job: missed(job, mql=0.8 if job.number == 0 else 0.7))
    assert told["test"]["no_worse"] is False
    (said,) = confirmed_lines(snapshot(study))
    assert "12 of its runs did not converge; so nothing" in said


def test_where_the_default_converged_a_run_that_is_cut_off_stays_a_miss(
    converging: Archive, tmp_path: Path
) -> None:
    told = confirmed(opened(converging, tmp_path))
    assert told["test"]["no_worse"] is False, "nothing is left to hold anything against"
    assert told["default"]["verified"] is None


def test_a_level_and_a_comparison_name_it(
    shown: OpenStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    now = snapshot(shown)
    (level,) = registered_levels(groups_of([now]))
    assert level.cut_off
    assert level.as_dict()["cut_off"] is True
    report = compare([now])
    (default,) = [row for row in report.rows if row.hyperparameters == "default"]
    assert (default.cut_off, dict(default.misses)) == (SEEDS, {})
    told = [line for _, lines in sections_of(report) for line in lines]
    assert any("default, cut off by its limit, with its margin" in line for line in told)
    print_report(report)
    printed = " ".join(capsys.readouterr().out.split())
    assert "12 of 12 runs were cut off by the limit of epochs; they count with what" in printed


def test_a_repeat_of_the_default_counts_whether_it_is_marked_or_not(
    cut: Archive, tmp_path: Path
) -> None:
    first, number = cut.records[0], len(cut.records)
    again = ended(run_of(cut, first, number, (9.0, 1.0)), StopReason.EPOCH_LIMIT)
    records = (*cut.records, again)
    study = opened(dataclasses.replace(cut, records=records, budget=number + 1), tmp_path)
    mine = [run.seconds for run in runs_of(snapshot(study)) if run.trial == 0]
    assert mine == [present(first.values)[0], 9.0]


def test_of_several_seeds_those_that_a_time_limit_ended_are_left_out(
    converging: Archive, tmp_path: Path
) -> None:
    first = converging.records[0]
    results = []
    for seed, (how, seconds) in enumerate(
        ((StopReason.TIME_LIMIT, 500.0), (StopReason.EPOCH_LIMIT, 5.0), (StopReason.CONVERGED, 6.0))
    ):
        converged = how == StopReason.CONVERGED
        recorded = dataclasses.replace(
            first.recorded,
            stopped_by=how,
            converged=converged,
            seed=seed,
            wall_clock_s=seconds,
            test_mql=1.0,
        )
        results.append(TrialResult(TrialState.COMPLETE, (seconds, 1.0), recorded))
    whole = combined(results, 3)
    record = dataclasses.replace(first, values=(6.0, 1.0), recorded=whole.recorded)
    records = (record, *converging.records[1:])
    now = snapshot(opened(dataclasses.replace(converging, records=records), tmp_path))
    assert (default_is_cut(now), default_of(now)) == (True, 0)
    assert [run.seconds for run in runs_of(now) if run.trial == 0] == [5.0, 6.0]


def test_it_is_not_among_the_configurations_that_converged(cut: Archive, tmp_path: Path) -> None:
    others = [ended(r, StopReason.EPOCH_LIMIT) if r.values else r for r in cut.records[1:]]
    nothing = dataclasses.replace(cut, records=(cut.records[0], *others))
    now = snapshot(opened(nothing, tmp_path))
    assert default_is_cut(now)
    assert "of study 'few' 0 configurations converged, and it takes 12" in str(answer_of(now))


def test_a_confirmed_level_stays_once_a_trial_of_the_default_converges(
    shown: OpenStudy, tmp_path: Path
) -> None:
    (before,) = registered_levels(groups_of([snapshot(shown)]))
    archive = archive_of(shown)
    number = len(archive.records)
    again = run_of(archive, archive.records[0], number, (9.0, 1.0))
    converged = dataclasses.replace(again.recorded, converged=True, stopped_by="converged")
    records = (*archive.records, dataclasses.replace(again, recorded=converged))
    (tmp_path / "later").mkdir()
    later = opened(
        dataclasses.replace(archive, records=records, budget=number + 1), tmp_path / "later"
    )
    assert not default_is_cut(snapshot(later))
    (after,) = registered_levels(groups_of([snapshot(later)]))
    assert (after.mql, after.runs) == (before.mql, before.runs)


def test_what_shows_the_gain_says_what_it_is_held_against(shown: OpenStudy) -> None:
    now = snapshot(shown)
    assert (
        ", where its limit cuts it off), and " in present(epochs_of(confirmation_of(now))).sentence
    )
    (drawn,) = confirmed_series([now])
    assert "of its default's time to its limit" in drawn.says
    assert present(drawn.default).label.startswith("the default cut off by its limit, ")
    assert present(first_level([now]))[0].startswith("rmsnorm's default at its limit + 1%: ")


def test_without_a_margin_and_where_the_default_stands_it_is_said_as_well(
    cut: Archive, tmp_path: Path
) -> None:
    study = opened(cut, tmp_path)
    plan_confirmation([study], seeds=SEEDS, margin=0.0)
    verify_all([study], faster)
    (said,) = confirmed_lines(snapshot(study))
    assert "no worse than the default, which its limit of epochs cut off (MQL 0.9" in said
