"""Verification from plan to figures, on every database: interleaved, resumable, on the study's own
device model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.drawn_verifications import drawn_result, verify_all
from tuner.config import Choice
from tuner.errors import UsageError
from tuner.export import load_best
from tuner.spec.membership import seed_of_trial
from tuner.spec.pareto import knee_index
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.verdict.compare.fairness import differences
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.explain import explain_study
from tuner.verdict.picks import picks, picks_expected, picks_of
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, front_of_runs
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verification_plan import (
    configurations,
    fresh_seeds,
    front_of_search,
    plan_verification,
    spread,
)
from tuner.verdict.verified import verifications_of

TOP = 3


def test_the_plan_interleaves_every_configuration_on_seeds_that_the_search_never_used(
    studies: list[OpenStudy],
) -> None:
    planned = plan_verification(studies, top=TOP, seeds=4)
    runs = verifications_of(studies).runs()
    assert (planned.new_runs, planned.missing) == (len(runs), ())
    results = [(study.study_id, read_results(study)) for study in studies]
    chosen = {
        (study_id, r.number)
        for study_id, each in results
        for r in configurations(each, TOP, front_of_runs(each))
    }
    assert len(runs) == 4 * len(chosen)
    blocks = [runs[i : i + len(chosen)] for i in range(0, len(runs), len(chosen))]
    for number, block in enumerate(blocks):
        assert {(run.study_id, run.trial_number) for run in block} == chosen
        assert {run.block for run in block} == {number}
        assert len({run.seed for run in block}) == 1
    orders = {tuple((run.study_id, run.trial_number) for run in block) for block in blocks}
    assert len(orders) > 1
    assert len({run.plan["shuffle_seed"] for run in runs}) == 1
    roots = [None, *(study.membership.seed_root for study in studies)]
    used = {seed_of_trial(number, root=root) for number in range(1000) for root in roots}
    assert not used & {run.seed for run in runs}


def test_the_same_plan_again_adds_nothing_and_more_seeds_add_only_theirs(
    studies: list[OpenStudy],
) -> None:
    first = plan_verification(studies, top=TOP, seeds=2).new_runs
    assert plan_verification(studies, top=TOP, seeds=2).new_runs == 0
    assert plan_verification(studies, top=TOP, seeds=3).new_runs == first // 2
    assert plan_verification(studies[:1], top=TOP, seeds=3).new_runs == 0


def test_default_and_knee_are_always_among_the_configurations(studies: list[OpenStudy]) -> None:
    results = read_results(studies[1])
    front = front_of_runs(results)
    assert len(front.trials) > 2
    for top in (1, 2, len(front.trials)):
        numbers = [record.number for record in configurations(results, top, front)]
        assert 0 in numbers
        assert front.trials[knee_index(front.points)].number in numbers
    assert len(spread(front, 2)) == 2
    assert picks(results, front)["default"] == 0


def test_a_plan_from_the_expected_front_is_what_a_verdict_speaks_of(
    database: Database, tmp_path: Path
) -> None:
    (study,) = [open_study(database, "many")]
    results = read_results(study)
    front = front_of_search(snapshot(study))
    assert front is not None
    assert picks_of(snapshot(study)) == picks(results, front_of_runs(results))
    plan_verification([study], top=3, seeds=1, choice=Choice.EXPECTED)
    runs = verifications_of([study]).runs()
    assert {run.plan["choice"] for run in runs} == {"expected"}
    assert {run.trial_number for run in runs} == {
        r.number for r in configurations(results, 3, front)
    }
    assert picks_of(snapshot(study)) == picks(results, front)
    expected, single = picks(results, front), picks(results, front_of_runs(results))
    pick = next(pick for pick in ("mql", "time", "knee") if expected[pick] != single[pick])
    assert (
        load_best(study="many", pick=pick, storage=study.database.address.full()).trial
        == expected[pick]
    )
    verify_all([study])  # an exported study holds what has finished
    path = tmp_path / "many.json.gz"
    write_archive(archive_of(study), path)
    assert load_best(pick=pick, storage=str(path)).trial == expected[pick]
    of_single = load_best(pick=pick, storage=str(path), values="single", max_time=1e9)
    assert (of_single.trial, of_single.chosen_on) == (single[pick], "single")
    assert load_best(pick=pick, storage=str(path), values="single").trial == single[pick]
    noted = load_best(pick=pick, storage=str(path), values="expected")
    assert (noted.trial, noted.chosen_on) == (expected[pick], "expected")
    assert "the last verification expected" in noted.why
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    imported = restore(elsewhere, read_archive(path), "many-again")
    assert picks_of(snapshot(imported)) == picks(results, front)
    elsewhere.close()


def test_the_last_plan_says_which_front_a_verdict_speaks_of_even_with_nothing_new_to_run(
    database: Database,
) -> None:
    study = open_study(database, "many")
    results = read_results(study)
    front = front_of_search(snapshot(study))
    assert front is not None
    single, expected = picks(results, front_of_runs(results)), picks(results, front)
    assert single != expected
    plan_verification([study], top=100, seeds=1, choice=Choice.EXPECTED)
    plan_verification([study], top=100, seeds=1)
    assert picks_of(snapshot(study)) == single
    other = open_study(database, "demo-rmsnorm")
    for choice, spoken_of in (
        (Choice.EXPECTED, expected),
        (Choice.FRONT, single),
        (Choice.EXPECTED, expected),
    ):
        assert plan_verification([study], top=3, seeds=1, choice=choice).new_runs == 0
        assert picks_of(snapshot(study)) == spoken_of
    fronts = [
        line
        for line in differences([snapshot(each) for each in (study, other)])
        if "fronts" in line
    ]
    assert fronts == []  # nothing of the other is verified
    plan_verification([study, other], top=1, seeds=1)
    plan_verification([study], top=1, seeds=1, choice=Choice.EXPECTED)
    fronts = [
        line
        for line in differences([snapshot(each) for each in (study, other)])
        if "fronts" in line
    ]
    assert fronts == [
        (
            "Picks were chosen from different fronts: many the expected one, demo-rmsnorm that of "
            "single runs."
        )
    ]


def test_what_was_expected_gives_way_to_limits_that_were_set_since(database: Database) -> None:
    study = open_study(database, "many")
    url = database.address.full()
    plan_verification([study], top=3, seeds=1, choice=Choice.EXPECTED)
    policy, best = study.policy(), load_best(study="many", pick="mql", storage=url)
    try:
        study.set_policy(policy.but(max_time_s=0.9 * best.values["wall_clock_s"]))
        within = load_best(study="many", pick="mql", values="single", storage=url)
        assert within.values["wall_clock_s"] <= 0.9 * best.values["wall_clock_s"]
        assert picks_of(snapshot(study))["mql"] == within.trial
        expected = load_best(study="many", pick="mql", storage=url)
        assert expected.values["wall_clock_s"] <= 0.9 * best.values["wall_clock_s"]
        assert "the last verification" not in expected.why
    finally:
        study.set_policy(policy)
    assert load_best(study="many", pick="mql", storage=url).trial == best.trial


def test_a_study_of_few_trials_is_verified_from_its_own_front_and_says_so(
    studies: list[OpenStudy],
) -> None:
    planned = plan_verification(studies[:1], top=TOP, seeds=1, choice=Choice.EXPECTED)
    (note,) = planned.notes
    there = len(read_results(studies[0]).eligible)
    assert note.startswith(
        f"expected values take {LEAST_CONFIGURATIONS} configurations that converged, and study "
        f"'demo-original' has {there}; the front of single runs stands"
    )
    runs = verifications_of(studies[:1]).runs()
    assert runs
    assert picks_expected(snapshot(studies[0])) == {}


def test_seeds_are_the_same_every_time_but_for_those_already_used() -> None:
    first = fresh_seeds(5, set())
    assert fresh_seeds(3, set()) == first[:3]
    assert fresh_seeds(4, {first[1]}) == [first[0], *first[2:5]]


def test_studies_of_different_devices_are_not_verified_together(
    database: Database, studies: list[OpenStudy]
) -> None:
    with pytest.raises(UsageError, match="different devices"):
        plan_verification([*studies, open_study(database, "elsewhere")], top=1, seeds=1)


@pytest.mark.parametrize("trials", [0, 1, 2])
def test_few_trials_say_what_is_missing_or_are_verified(database: Database, trials: int) -> None:
    opened = [open_study(database, f"few-{trials}")]
    planned = plan_verification(opened, top=5, seeds=1)
    if trials == 0:
        assert planned.missing == ("few-0: no finished trial; nothing to verify yet",)
    assert len(verifications_of(opened).runs()) == planned.new_runs == trials


def test_studies_compare_as_soon_as_their_runs_are_made(
    database: Database, studies: list[OpenStudy]
) -> None:
    url = database.address.full()
    named = ["study:demo-original", "study:demo-rmsnorm", "study:few-0"]
    plan_verification(studies, top=1, seeds=5)
    before = compare(read_studies(named, task="demo", storage=url))
    assert not any(row.verified for row in before.rows)
    assert any("has 0 of 5 planned verification runs" in line for line in before.missing)
    verify_all(
        studies, lambda job: drawn_result(job, seconds=6.0 if job.study == "demo-rmsnorm" else 10.0)
    )
    after = compare(read_studies(named, task="demo", storage=url))
    times = {row.study: row.figures["total_time_s"] for row in after.rows if row.verified}
    for name, seconds in (("demo-original", 10.0), ("demo-rmsnorm", 6.0)):
        assert isinstance(found := times[name], Interval)
        assert found.estimate == pytest.approx(seconds, rel=0.1)
    assert any(line.startswith("few-0: no converged trial") for line in after.missing)
    assert (
        explain_study(after.studies[2]).missing[0]
        == "importances need 10 complete trials, there are 0"
    )
