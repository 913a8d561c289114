"""A study whose last block of the test split only a confirmation opens: what is learnt from it,
what is said of it, and what it is held against."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.drawn_verifications import drawn_result, verify_all
from tests.support.planned_confirmations import SEEDS, last
from tests.support.present import present
from tests.support.recorded_studies import record_study
from tests.support.refusals import refused
from tests.support.small_csv import TASK, csv_lines
from tuner.config import MqlSplit
from tuner.errors import UsageError
from tuner.export import load_best
from tuner.launch.retune_agreement import agreement
from tuner.launch.retune_request import RetuneRequest
from tuner.report.terminal.verification import print_verified
from tuner.spec.definition import differences
from tuner.spec.policy import StudySettings
from tuner.storage.database import Database, open_database
from tuner.storage.queue.verifications import is_confirmation
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.relaunch import fronts_of, refuse_what_saw_last_block
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict.compare.findings import compare
from tuner.verdict.confirmation import runs_to_learn_from
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.known_runs import runs_of
from tuner.verdict.reasons import CHOSEN_ON_TEST, LAST_BLOCK_KEPT, confirmed_sentence
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.verification_plan import plan_verification
from tuner.verdict.verified import verified_in

BEFORE, LAST = 0.8, 1.2
"""Test MQLs of the blocks that a search sees, and of the last one."""


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Searches that keep their last block, and one that does not."""
    url = f"sqlite:///{tmp_path_factory.mktemp('origins')}/tuner.db"
    for variant, name in (("original", ""), ("rmsnorm", ""), ("original", "failing")):
        record_study(url, variant=variant, name=name, trials=24, mql_split="origins")
    record_study(url, variant="original", name="whole", trials=5)
    database = open_database(parse_url(url), create=False)
    yield database
    database.close()


@pytest.fixture(scope="module")
def both(searched: Database) -> list[OpenStudy]:
    """A search of each of two variants, confirmed, and verified as well."""
    studies = [open_study(searched, name) for name in ("demo-original", "demo-rmsnorm")]
    plan_confirmation(studies, seeds=SEEDS)
    plan_verification(studies, top=1, seeds=6)
    verify_all(studies, runs())
    return studies


def only(study: OpenStudy, *, confirmations: bool) -> StudySnapshot:
    """The study as if either all its runs were of confirmations, or none."""
    now = snapshot(study)
    kept = tuple(run for run in now.runs if is_confirmation(run.plan) is confirmations)
    return dataclasses.replace(now, read_runs=lambda: kept)


def runs(*, worse: float = 1.0) -> Callable[[TrialJob], TrialResult]:
    """Whatever is not the default is faster; on the last block its MQL is `worse`."""

    def run(job: TrialJob) -> TrialResult:
        seconds = 10.0 if job.number == 0 else 6.0
        mql = LAST * (1.0 if job.number == 0 else worse) if job.confirms else BEFORE
        found = drawn_result(job, seconds=seconds, mql=mql)
        drawn = present(found.recorded.test_mql)
        series = {"A": drawn, "B": 2 * drawn}
        recorded = dataclasses.replace(found.recorded, series_test_mql=series)
        return dataclasses.replace(found, recorded=recorded)

    return run


# -- what a confirmation says ----------------------------------------------------------------------


def test_a_confirmation_is_judged_on_the_last_block_and_says_so(
    both: list[OpenStudy], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = both[0]
    found = last(study)
    assert found.test is not None
    assert found.test.claimed
    assert found.default is not None
    assert found.default.mql is not None
    assert found.default.mql.estimate == pytest.approx(LAST, rel=0.01)
    assert found.as_dict()["last_block"] is True
    said = confirmed_sentence(found, name="it")
    on = f"on {SEEDS} untouched seeds and on the last block of the test split, which the search "
    assert f"{on}had not seen" in said
    assert "as a multiple of the default's is, on B, last block: " in said
    print_verified([study], ended="filled")
    shown = capsys.readouterr().out
    assert LAST_BLOCK_KEPT in shown
    assert CHOSEN_ON_TEST not in shown
    # An export carries it, whoever reads it.
    path = tmp_path / "study.json.gz"
    write_archive(archive_of(study), path)
    best = load_best(storage=str(path))
    assert best.confirmed is not None
    assert best.confirmed["last_block"] is True
    assert "last block" in best.confirmed["sentence"]
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    imported = restore(elsewhere, read_archive(path), "renamed")
    assert imported.definition == study.definition
    assert last(imported).test == found.test
    assert last(imported).last_block
    elsewhere.close()


def test_nothing_is_learnt_from_one_that_failed(searched: Database) -> None:
    study = open_study(searched, "failing")
    before = snapshot(study)
    plan_confirmation([study], seeds=SEEDS)
    verify_all([study], runs(worse=1.1))
    now, found = snapshot(study), last(study)
    assert found.test is not None
    assert not found.test.claimed
    assert "which the search had not seen" in confirmed_sentence(found, name="it")
    assert runs_to_learn_from(now) == ()
    assert runs_of(now) == runs_of(before)
    assert recommended_trial(now) == recommended_trial(before) == found.frozen.recommended
    # The same runs of a study that keeps no block would count.
    whole = dataclasses.replace(
        now, definition=dataclasses.replace(now.definition, mql_split="test")
    )
    assert len(runs_to_learn_from(whole)) == len(now.runs) > 0
    # What else is verified is of the blocks before, and counts.
    plan_verification([study], top=1, seeds=1)
    verify_all([study], runs())
    learnt = runs_to_learn_from(snapshot(study))
    assert [run for run in snapshot(study).runs if not is_confirmation(run.plan)] == list(learnt)
    assert len(runs_of(snapshot(study))) == len(runs_of(before)) + len(learnt)
    again = found.frozen.model_copy(update={"attempt": 2})
    said = confirmed_sentence(dataclasses.replace(found, frozen=again), name="it")
    assert said.endswith("5 % to be wrong, and all of them open the same block")


# -- levels between variants -----------------------------------------------------------------------


def test_a_confirmed_level_is_of_the_last_block_for_all_variants(both: list[OpenStudy]) -> None:
    report = compare([snapshot(each) for each in both])
    level = report.registered[0]
    assert (level.confirmed, level.last_block) == (True, True)
    assert level.default_mql == pytest.approx(LAST, rel=0.01)
    assert all(each.confirmed for times in level.searches.values() for each in times)
    assert report.between[0].sentence.startswith(
        f"At a test MQL of {level.mql:.4f} on the last block of the test split (the default of "
    )
    assert LAST_BLOCK_KEPT in report.notes


def test_what_is_not_confirmed_is_unknown_at_a_confirmed_level(both: list[OpenStudy]) -> None:
    report = compare([snapshot(both[0]), only(both[1], confirmations=False)])
    (time,) = report.registered[0].searches["demo-rmsnorm"]
    assert (time.how, time.seconds, time.confirmed) == ("unknown", None, False)
    assert time.as_dict()["unknown_because"] == (
        "the level is of the last block, which only a confirmation opens"
    )
    assert not report.between[0].claimed
    assert "not confirmed: demo-rmsnorm" in report.between[0].sentence


def test_a_level_that_is_not_confirmed_is_held_against_runs_of_the_same_windows(
    both: list[OpenStudy],
) -> None:
    """The reference verified, the other one confirmed: neither says anything of the other."""
    reference = only(both[0], confirmations=False)
    report = compare([reference, only(both[1], confirmations=True)])
    level = report.registered[0]
    assert (level.confirmed, level.last_block) == (False, False)
    assert level.default_mql == pytest.approx(BEFORE, rel=0.01)
    (time,) = level.searches["demo-rmsnorm"]
    assert not time.confirmed
    assert not report.between[0].claimed
    found = verified_in(reference)[0].mql
    assert found is not None
    assert found.estimate == pytest.approx(BEFORE, rel=0.01)


# -- other splits ----------------------------------------------------------------------------------


def test_studies_on_other_windows_are_not_held_against_each_other(
    searched: Database, both: list[OpenStudy]
) -> None:
    whole = open_study(searched, "whole")
    apart = "are judged on different windows of the test split: their figures do not compare"
    with pytest.raises(UsageError, match=apart):
        compare([snapshot(both[0]), snapshot(whole)])
    with pytest.raises(UsageError, match=apart):
        plan_verification([both[0], whole], top=1, seeds=1)
    with pytest.raises(UsageError, match=apart):
        plan_confirmation([both[0], whole], seeds=SEEDS)
    phrases = differences(whole.definition, both[0].definition)
    assert phrases == ["mql_split: test there, origins asked"]
    assert whole.definition.objectives == both[0].definition.objectives


def test_a_retune_against_a_reference_on_other_windows_is_refused_before_it_runs(
    searched: Database,
) -> None:
    """The reference is there, and keeps its split; the variant is not."""
    request = RetuneRequest(variant="simple", against="original", task="demo")
    with pytest.raises(UsageError, match=r"'demo-original' \(--mql-split origins\)"):
        agreement(request, searched.address)
    origins = StudySettings(mql_split=MqlSplit.ORIGINS)
    found = agreement(dataclasses.replace(request, settings=origins), searched.address)
    assert found.groups == ("demo-original", "demo-simple")


def test_a_test_split_too_short_for_blocks_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "small.toml").write_text(TASK)
    (tmp_path / "small.csv").write_text("\n".join(csv_lines(60)) + "\n")
    launch = "launch --cpu --variant rmsnorm --trials 2 --max-epochs 1 --task small.toml"
    refused(
        *launch.split(),
        "--mql-split",
        "origins",
        folder=tmp_path,
        code=2,
        says=("--mql-split origins", "has 3 test windows, too few to cut into 4 "),
    )


def test_a_search_does_not_begin_with_what_was_chosen_by_the_last_block(
    searched: Database, both: list[OpenStudy]
) -> None:
    whole, sibling = (fronts_of(searched, name) for name in ("whole", "demo-rmsnorm"))
    keeps = both[0].definition
    with pytest.raises(UsageError, match="'whole' chose by the whole test split"):
        refuse_what_saw_last_block(keeps, whole)
    refuse_what_saw_last_block(keeps, sibling)
    refuse_what_saw_last_block(dataclasses.replace(keeps, mql_split="test"), whole)
    refuse_what_saw_last_block(dataclasses.replace(keeps, data_hash="0" * 64), whole)
