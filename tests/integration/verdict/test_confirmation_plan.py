"""What a confirmation runs: it is frozen before its first run, on seeds that nothing has seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.planned_confirmations import SEEDS, known, last, opened
from tests.support.present import present
from tuner.config import Choice
from tuner.errors import UsageError
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict.confirmation import default_runs, mqls_of
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.recommendation import ROUNDS
from tuner.verdict.retune_cost import spent_on
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.verification_plan import plan_verification, seen_seeds
from tuner.verdict.verified import verifications_of


def test_what_is_recommended_and_the_default_run_on_seeds_that_nothing_has_seen(
    unverified: Database,
) -> None:
    studies = opened(unverified)
    plan_verification(studies, top=1, seeds=2)
    before = seen_seeds(unverified)
    planned = plan_confirmation(studies, seeds=SEEDS)
    runs = [run for run in verifications_of(studies).runs() if "confirms" in run.plan]
    assert planned.new_runs == len(runs)
    assert planned.missing == ()
    assert not {run.seed for run in runs} & before
    by_study = {
        each.name: {run.seed for run in runs if run.study_id == each.study_id} for each in studies
    }
    assert all(len(seeds) == SEEDS for seeds in by_study.values())
    assert len(set(map(frozenset, by_study.values()))) == 1, "all run on the same"
    blocks: dict[int, list[tuple[int, int]]] = {}
    for run in runs:
        blocks.setdefault(run.block, []).append((run.study_id, run.trial_number))
    assert len(blocks) == SEEDS
    assert len({frozenset(block) for block in blocks.values()}) == 1
    assert len({tuple(block) for block in blocks.values()}) > 1
    for each in studies:
        frozen = last(each).frozen
        chosen = recommended_trial(snapshot(each))  # the default, where nothing is surely as good
        assert frozen.recommended == (None if chosen == frozen.default else chosen)
        assert each.policy().margin == frozen.margin == 0.01
    assert last(studies[2]).reference == "demo-original"
    assert all(last(each).frozen.offers for each in studies)


def test_the_default_of_several_searches_runs_once_and_costs_once(unverified: Database) -> None:
    studies = opened(unverified, "demo-original", "demo-original-2")
    plan_confirmation(studies, seeds=SEEDS)
    queue = verifications_of(studies)
    ran: list[tuple[str, int]] = []

    def run(job: TrialJob) -> TrialResult:
        ran.append((job.study, job.number))
        return known()(job)

    verify_all(studies, run)
    first, second = (last(each) for each in studies)
    assert first.complete
    assert second.complete
    assert ran.count(("demo-original", first.frozen.default)) == SEEDS
    assert ran.count(("demo-original-2", second.frozen.default)) == 0
    assert present(first.default).sample().mql == present(second.default).sample().mql
    copies = [run for run in queue.runs() if run.copied]
    assert {run.study_id for run in copies} == {studies[1].study_id}
    assert len(copies) == SEEDS
    whole = [snapshot(each) for each in studies]
    assert spent_on(whole).confirmation_s == pytest.approx(queue.spent_s(copies[0].session))
    assert spent_on(whole).confirmation_runs == len(ran)
    assert len(mqls_of(default_runs(whole)[0])) == SEEDS, "a seed is one training"
    before = queue.runs()
    assert plan_confirmation(studies, seeds=SEEDS).new_runs == 0
    assert queue.runs() == before


def test_the_margin_is_recorded_first_and_no_other_is_taken_later(unverified: Database) -> None:
    (study,) = opened(unverified, "demo-rmsnorm-2")
    study.set_policy(study.policy().but(margin=None))
    plan_confirmation([study], seeds=SEEDS, margin=0.02)
    assert study.policy().margin == last(study).frozen.margin == 0.02
    with pytest.raises(UsageError, match="has had a margin of 2% since before"):
        plan_confirmation([study], seeds=SEEDS, margin=0.01)
    study.set_policy(study.policy().but(margin=None))


def test_a_study_that_recommends_nothing_is_named(unverified: Database) -> None:
    planned = plan_confirmation(opened(unverified, "demo-simple"), seeds=SEEDS)
    assert planned.new_runs == 0
    assert "configurations converged, and it takes 12" in planned.missing[0]


def test_rounds_verify_what_may_be_recommended_and_end(unverified: Database) -> None:
    (study,) = opened(unverified, "demo-original")
    told = [0]
    for _ in range(ROUNDS):
        planned = plan_verification([study], top=3, seeds=2, choice=Choice.RECOMMENDED)
        assert planned.new_runs in (2, 4, 6, 8, 10)  # of three, the default and the knee
        same = plan_verification([study], top=3, seeds=2, choice=Choice.RECOMMENDED)
        assert same.new_runs == 0, "a round that is under way goes on"
        verify_all([study], known())
        told.append(len(verifications_of([study]).runs()))
    assert told == sorted(set(told))
    assert plan_verification([study], top=3, seeds=2, choice=Choice.RECOMMENDED).new_runs == 0
    (small,) = opened(unverified, "demo-simple")
    said = plan_verification([small], top=3, seeds=2, choice=Choice.RECOMMENDED).missing
    assert "it takes 12" in said[0]


def test_what_an_export_left_of_a_confirmation_is_planned_again_and_completes_it(
    unverified: Database, tmp_path: Path
) -> None:
    studies = opened(unverified, "demo-original", "demo-original-2")
    plan_confirmation(studies, seeds=SEEDS)
    planned = _seeds_of(studies)
    verify_all(studies, known())
    ended = {run.place for run in verifications_of(studies).runs()[: len(planned) * 2 // 5]}
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    taken = []
    for each in studies:
        archive = archive_of(each)
        runs = tuple(run for run in archive.verifications if run.place in ended)
        path = tmp_path / f"{each.name}.json.gz"
        write_archive(dataclasses.replace(archive, verifications=runs), path)
        taken.append(restore(elsewhere, read_archive(path), each.name))
    there = _seeds_of(taken)
    again = plan_confirmation(taken, seeds=SEEDS)
    assert again.new_runs == len(planned) - len(ended), "what is shared is run once"
    assert "the confirmation goes on" in again.notes[0]
    assert plan_confirmation(taken, seeds=SEEDS).new_runs == 0
    now = _seeds_of(taken)
    assert now.keys() == planned.keys()
    assert now.items() >= there.items()
    of_block = {block: seed for (_, _, block), seed in now.items()}
    assert len(set(of_block.values())) == len(of_block) == SEEDS
    assert all(of_block[n] == seed for (_, _, n), seed in now.items())
    verify_all(taken, known())
    assert all(last(each).complete for each in taken)
    elsewhere.close()


def _seeds_of(studies: Sequence[OpenStudy]) -> dict[tuple[str, int, int], int]:
    """The seed of each run of a confirmation that its study makes, by study, trial and block."""
    names = {each.study_id: each.name for each in studies}
    return {
        (names[run.study_id], run.trial_number, run.block): run.seed
        for run in verifications_of(studies).runs()
        if not run.copied
    }
