"""What a confirmation says once its runs have ended, with answers that are known."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.support.drawn_verifications import missed, verify_all
from tests.support.planned_confirmations import SEEDS, known, last, opened
from tuner.export import load_best
from tuner.report.comparison_files import page
from tuner.report.study_status import status_of
from tuner.report.terminal.tables import print_status
from tuner.report.terminal.verification import print_verified, verification_document
from tuner.spec.margin import LEAST_RUNS
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.baselines import ATTRIBUTE, PLAIN, Scored
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict import confirmation_plan
from tuner.verdict.compare.findings import compare
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.reasons import because_of_answer, confirmed_sentence
from tuner.verdict.recommendation import model_of
from tuner.verdict.same_quality import answer_of, recommended, recommended_trial
from tuner.verdict.verification_plan import plan_verification
from tuner.verdict.verified import verifications_of, verified_in


def test_a_recommendation_that_is_as_good_is_confirmed_and_stays_what_it_is(
    unverified: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    studies = opened(unverified, "demo-original", "demo-rmsnorm")
    plan_confirmation(studies, seeds=SEEDS)
    assert plan_confirmation(studies, seeds=SEEDS).new_runs == 0
    planned = SEEDS * len(last(studies[0]).frozen.trials())
    said = compare([snapshot(studies[0])]).confirmed[0].sentence
    assert f"under way, 0 of {planned} runs" in said
    verify_all(studies, known())
    again = plan_confirmation(studies, seeds=30)
    assert again.new_runs == 0
    assert "planned with 12 seeds and keeps them" in again.notes[0]
    found = last(studies[0])
    assert found.complete
    assert found.test is not None
    assert found.test.claimed
    assert found.test.no_worse is not None
    assert found.test.no_worse.bound < 1.01
    assert found.test.ratio is not None
    assert found.test.ratio.covers(0.6)
    assert recommended_trial(snapshot(studies[0])) == found.frozen.recommended
    assert verified_in(snapshot(studies[0])) == {}, "a confirmation stands apart"
    simple = Scored(name=PLAIN, test_mql=1.25).stored()
    studies[0].optuna.set_user_attr(ATTRIBUTE, [simple])
    report = compare([snapshot(each) for each in studies])
    assert report.missing == (), "points of the front are no part of the answer"
    assert found.recommended is not None
    assert found.recommended.mql is not None
    as_confirmed = f"needs no training: {found.recommended.mql.estimate:.4g} against 1.25"
    assert "original as confirmed" in report.answer[0], "not the luckiest of a search"
    assert as_confirmed in report.answer[0]
    assert "<h1>original, rmsnorm on demo</h1>" in page(report)
    document = verification_document(studies)["studies"][0]["confirmation"]
    assert document["test"]["no_worse"] is True
    assert "is no worse than the default by more than 1 %" in document["sentence"]
    assert json.loads(json.dumps(status_of(studies[0])))["confirmation"]["complete"] is True
    print_status([studies[0]])
    assert " confirmed " in capsys.readouterr().out
    best = load_best(study="demo-original", storage=studies[0].database.address.full())
    assert best.confirmed is not None
    assert best.as_dict()["confirmed"]["test"]["no_worse"] is True
    # Exported, and imported under another name, it says the same.
    path = tmp_path / "study.json.gz"
    write_archive(archive_of(studies[0]), path)
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    imported = restore(elsewhere, read_archive(path), "renamed")
    assert last(imported).test == found.test
    elsewhere.close()


def test_one_that_is_worse_is_not_confirmed_and_its_runs_count_from_then_on(
    unverified: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = opened(unverified, "demo-original")
    plan_confirmation([study], seeds=SEEDS)
    first = last(study).frozen.recommended
    verify_all([study], known(mql=0.83))
    found = last(study)
    assert found.test is not None
    assert not found.test.claimed
    print_status([study])
    assert " not shown " in capsys.readouterr().out
    print_verified([study], ended="filled")
    said = capsys.readouterr().out
    assert (
        f"that trial {first} is no worse than the default by more than 1 % is not shown on" in said
    )
    assert "so nothing is said of its time" in said
    assert "and takes" not in said
    assert "The search chose by the MQL of the test split" in said
    assert recommended_trial(snapshot(study)) != first
    # It takes something new to try another: a second chance is said to be one.
    assert plan_confirmation([study], seeds=SEEDS).new_runs == 0
    plan_verification([study], top=1, seeds=1)
    verify_all([study], known(mql=0.83))
    assert plan_confirmation([study], seeds=SEEDS).new_runs in (LEAST_RUNS, 2 * SEEDS)
    assert last(study).frozen.attempt == 2


@pytest.mark.parametrize(
    ("bad", "claimed", "stands", "said"),
    [
        ((), 3, 9, "tested after trial 21 and trial 5, shown before it"),
        ((5,), 1, 21, "; trial 5, tested after it, is not shown to be"),
    ],
)
def test_bolder_ones_are_tested_in_order_and_the_last_that_is_shown_stands(
    unverified: Database,
    monkeypatch: pytest.MonkeyPatch,
    bad: tuple[int, ...],
    claimed: int,
    stands: int,
    said: str,
) -> None:
    (study,) = opened(unverified, "demo-original")
    model = model_of(snapshot(study))
    assert model is not None
    steps = tuple(model.estimate(n, model.chance_of_default(0.01)) for n in (21, 5, 9))
    monkeypatch.setattr(confirmation_plan, "confirmation_steps", lambda *_, **__: steps)
    assert plan_confirmation([study], seeds=SEEDS).new_runs == 4 * SEEDS
    assert last(study).tests == ()
    verify_all([study], lambda job: known(mql=0.83 if job.number in bad else 0.8)(job))
    found = last(study)
    assert (found.claimed, found.trial) == (claimed, stands)
    assert len(found.tests) == min(claimed + 1, 3)
    assert found.recommended is not None
    assert found.recommended.trial_number == stands
    assert said in confirmed_sentence(found, name="it")
    answer = answer_of(snapshot(study))
    assert not isinstance(answer, str)
    assert answer.confirmed
    assert answer.chosen.trial == stands
    assert "the boldest that the last confirmation showed" in because_of_answer(answer)
    # Another margin was not confirmed, and what runs from now on is to choose by.
    assert not recommended(snapshot(study), model, margin=0.02).confirmed
    plan_verification([study], top=1, seeds=1)
    verify_all([study], known())
    after = answer_of(snapshot(study))
    assert not isinstance(after, str)
    assert not after.confirmed
    document = found.as_dict()
    assert [each["trial"] for each in document["steps"]] == [21, 5, 9]
    assert document["recommended"]["trial"] == stands


@pytest.mark.parametrize(("misses", "claimed"), [(2, True), (5, False)])
def test_one_that_surely_misses_more_often_is_not_confirmed(
    unverified: Database, misses: int, claimed: bool
) -> None:
    (study,) = opened(unverified, "demo-original")
    plan_confirmation([study], seeds=SEEDS)
    lost = sorted({run.seed for run in verifications_of([study]).runs()})[:misses]

    def run(job: TrialJob) -> TrialResult:
        return missed(job) if job.number and job.seed in lost else known()(job)

    verify_all([study], run)
    test = last(study).test
    assert test is not None
    assert (test.missed, test.claimed) == ((misses, 0), claimed)
    said = confirmed_sentence(last(study), name="it")
    assert f"; {misses} of its runs did not converge, and 0 of the default's" in said


def test_other_series_and_splits_are_reported_and_decide_nothing(unverified: Database) -> None:
    (study,) = opened(unverified, "demo-original")
    plan_confirmation([study], seeds=SEEDS)

    def run(job: TrialJob) -> TrialResult:
        """As good on A, whose test MQL decides; worse by 5 % on B."""
        result = known()(job)
        mql = result.recorded.test_mql
        assert mql is not None
        worse = 1.05 if job.number else 1.0
        recorded = dataclasses.replace(
            result.recorded,
            series_test_mql={"A": mql, "B": 2 * mql * worse},
            series_val_mql={"A": 0.9 * mql, "C": None},
        )
        return dataclasses.replace(result, recorded=recorded)

    verify_all([study], run)
    found = last(study)
    assert found.test is not None
    assert found.test.claimed
    ratios = {(each.series, each.split): each.ratio for each in found.elsewhere}
    assert set(ratios) == {("B", "test"), ("A", "validation")}
    assert ratios["B", "test"].estimate == pytest.approx(1.05, rel=0.01)
    assert ratios["A", "validation"].covers(1.0)
    assert [each["split"] for each in found.as_dict()["elsewhere"]] == ["test", "validation"]
    sentence = confirmed_sentence(found, name="it")
    assert "On other data, which decides nothing," in sentence
    assert "is, on B, test: 1.0" in sentence
