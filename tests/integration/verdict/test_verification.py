"""Verification from plan to figures, on every database: interleaved, resumable, on the study's own
device model."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from optuna.trial import TrialState
from sqlalchemy import delete

from tests.support.drawn_verifications import DEVICE, drawn_result, missed, verify_all
from tests.support.postgres_cluster import Cluster
from tests.support.recorded_studies import record_study
from tuner.devices import CpuCores
from tuner.errors import UsageError
from tuner.export import load_best
from tuner.pareto import knee_index
from tuner.record import Recorded
from tuner.report.study_status import status_of
from tuner.report.terminal.verification import print_verified, verification_document
from tuner.spec.seeds import seed_of_trial
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.trial.job import TrialJob
from tuner.verdict.compare.fairness import differences
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.expected_front import LEAST_TRIALS, Choice, front_of, front_of_runs
from tuner.verdict.explain import explain_study
from tuner.verdict.fresh_seeds import fresh_seeds
from tuner.verdict.picks import picks, picks_expected, picks_judged, picks_of
from tuner.verdict.queue import verifications_of
from tuner.verdict.verification_plan import configurations, plan_verification, spread
from tuner.verdict.verified import read_verified, verified_of
from tuner.worker.loop import Worker
from tuner.worker.verification_source import VerificationSource

TOP = 3


@pytest.fixture(scope="module")
def recorded(postgres: Cluster) -> Iterator[Database]:
    """Studies of two variants, of 0 to 2 trials, and of another device, recorded once: only their
    runs change."""
    url = postgres.url(postgres.create_database())
    for variant in ("original", "rmsnorm"):
        record_study(url, variant=variant, trials=8)
    for trials in range(3):
        record_study(url, variant="rmsnorm", trials=trials, name=f"few-{trials}")
    record_study(url, variant="rmsnorm", trials=1, name="elsewhere", device="Another CPU, 2 cores")
    record_study(url, variant="rmsnorm", trials=LEAST_TRIALS + 4, name="many")
    database = open_database(parse_url(url), create=False)
    yield database
    database.close()


@pytest.fixture
def database(recorded: Database) -> Database:
    with recorded.engine.begin() as connection:
        connection.execute(delete(schema.verifications))
    return recorded


@pytest.fixture
def studies(database: Database) -> list[OpenStudy]:
    return [open_study(database, name) for name in ("demo-original", "demo-rmsnorm")]


def test_the_plan_interleaves_every_configuration_on_seeds_that_the_search_never_used(
    studies: list[OpenStudy],
) -> None:
    planned = plan_verification(studies, top=TOP, seeds=4, shuffle_seed=7)
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
    assert {run.plan["shuffle_seed"] for run in runs} == {7}
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
    front = front_of(results, study.definition.space, Choice.EXPECTED)
    assert picks_judged(results, (), "many") == picks(results, front_of_runs(results))
    plan_verification([study], top=3, seeds=1, choice=Choice.EXPECTED)
    runs = verifications_of([study]).runs()
    assert {run.plan["choice"] for run in runs} == {"expected"}
    assert {run.trial_number for run in runs} == {
        r.number for r in configurations(results, 3, front)
    }
    assert picks_judged(results, runs, "many") == picks(results, front)
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
    single, expected = (
        picks(results, front_of(results, study.definition.space, choice))
        for choice in (Choice.FRONT, Choice.EXPECTED)
    )
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
        study.set_policy(dataclasses.replace(policy, max_time_s=0.9 * best.values["wall_clock_s"]))
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
    assert (
        f"takes {LEAST_TRIALS} trials that may stand on the front, and there are {there};" in note
    )
    runs = verifications_of(studies[:1]).runs()
    assert runs
    assert picks_expected(read_results(studies[0]), runs, studies[0].name) == {}


def test_seeds_are_the_same_every_time_but_for_those_already_used() -> None:
    first = fresh_seeds(5, set())
    assert fresh_seeds(3, set()) == first[:3]
    assert fresh_seeds(4, {first[1]}) == [first[0], *first[2:5]]


def test_verified_figures_are_those_of_the_fresh_runs(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=6)
    results = read_results(studies[1])
    knee = picks(results, front_of_runs(results))["knee"]
    assert verified_of(studies[1], knee) is None
    verify_all(studies)
    found = verified_of(studies[1], knee)
    assert found is not None
    assert (found["seeds"], found["converged"], found["misses"], found["contaminated"]) == (
        6,
        6,
        {},
        0,
    )
    assert (
        found["wall_clock_s"]["low"]
        < found["wall_clock_s"]["median"]
        < found["wall_clock_s"]["high"]
    )
    assert found["test_mql"]["median"] == pytest.approx(0.8, abs=0.01)
    on_front = {row["trial"]: row["verified"] for row in status_of(studies[1])["front"]}
    assert on_front[knee] == found
    assert status_of(studies[1])["verification"]["waiting"] == 0
    assert read_results(studies[1]).front  # the search's own trials are as they were
    assert studies[1].ledger.counts().finished == 8


def test_misses_are_counted_and_never_become_numbers(studies: list[OpenStudy]) -> None:
    plan_verification(studies[:1], top=1, seeds=6)
    first = verifications_of(studies[:1]).runs()[0].seed
    verify_all(studies[:1], lambda job: missed(job) if job.seed == first else drawn_result(job))
    for each in read_verified(studies[0]):
        assert each.misses == {"epoch_limit": 1}
        assert each.seconds is not None
        assert (each.seconds.runs, len(each.runs)) == (5, 6)
        assert first not in each.sample().seconds
        assert (each.sample().runs, each.sample().misses) == (6, 1)


def test_a_disturbed_timing_is_left_out_of_the_times_alone(studies: list[OpenStudy]) -> None:
    plan_verification(studies[:1], top=1, seeds=6)
    first = verifications_of(studies[:1]).runs()[0].seed

    def run(job: TrialJob) -> TrialResult:
        result = drawn_result(job)
        return TrialResult(
            result.state,
            result.values,
            dataclasses.replace(result.recorded, contaminated=job.seed == first),
        )

    verify_all(studies[:1], run)
    for each in read_verified(studies[0]):
        assert each.seconds is not None
        assert each.mql is not None
        assert (each.seconds.runs, each.mql.runs) == (5, 6)


def test_an_interrupted_verification_goes_on_where_it_was(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=3)
    queue = verifications_of(studies)
    done: list[tuple[str, int, int | None]] = []

    class PulledPlugError(BaseException):
        """Nothing of the worker's own gets to run after this."""

    def run(job: TrialJob) -> TrialResult:
        if len(done) == 4:
            raise PulledPlugError
        done.append((job.study, job.number, job.seed))
        return drawn_result(job)

    with pytest.raises(PulledPlugError):
        verify_all(studies, run, name="first")
    before = {run.run_id: run.result for run in queue.runs() if run.state == "finished"}
    assert len(before) == 4
    assert queue.reap(worker="first") == 1
    done.append(("the plug is back", -1, None))
    verify_all(studies, run, name="second")
    after = queue.runs()
    assert {run.state for run in after} == {"finished"}
    assert {run.run_id: run.result for run in after if run.run_id in before} == before
    made = Counter(entry for entry in done if entry[1] >= 0)
    assert set(made.values()) == {1}
    assert len(made) == len(after)


def test_a_run_that_is_interrupted_is_handed_back(studies: list[OpenStudy]) -> None:
    plan_verification(studies[:1], top=1, seeds=1)
    answers: list[TrialResult | None] = []

    def run(job: TrialJob) -> TrialResult | None:
        answers.append(None if not answers else drawn_result(job))
        return answers[-1]

    verify_all(studies[:1], run)
    runs = verifications_of(studies[:1]).runs()
    assert len(answers) == len(runs) + 1
    assert {run.losses for run in runs} == {0}


def test_what_a_model_raises_is_a_miss(studies: list[OpenStudy]) -> None:
    plan_verification(studies[:1], top=1, seeds=1)

    def run(job: TrialJob) -> TrialResult:
        raise ValueError("shapes do not fit")

    verify_all(studies[:1], run)
    assert all(each.misses == {"error": 1} for each in read_verified(studies[0]))


def test_only_the_studys_own_device_model_verifies(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=1)
    with pytest.raises(UsageError, match="times of different devices do not compare"):
        Worker(studies, CpuCores((0,)), drawn_result, sources=(VerificationSource,)).run()
    assert {run.state for run in verifications_of(studies).runs()} == {"waiting"}


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
    assert before.answers == ()
    assert any("has 0 of 5 planned verification runs" in line for line in before.missing)
    verify_all(
        studies, lambda job: drawn_result(job, seconds=6.0 if job.study == "demo-rmsnorm" else 10.0)
    )
    after = compare(read_studies(named, task="demo", storage=url))
    ratio = after.answers[0].comparison.seconds.estimate
    assert ratio is not None
    assert ratio.covers(0.6)
    assert after.answers[0].sentence.startswith("default demo-rmsnorm has 6.")
    assert any(line.startswith("few-0: no converged trial") for line in after.missing)
    assert (
        explain_study(after.studies[2]).missing[0]
        == "importances need 10 complete trials, there are 0"
    )


def test_a_clear_answer_ends_a_verification_at_its_planned_look(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=10, stop_early=True)

    def run(job: TrialJob) -> TrialResult:
        """Each configuration has twice the time of the one before it, and 0.2 more MQL: nobody
        could overlook it."""
        place = 1 + 2 * (job.study == studies[0].name) + (job.number > 0)
        return drawn_result(job, seconds=10.0 * 2**place, mql=0.2 * place)

    verify_all(studies, run)
    states = Counter(run.state for run in verifications_of(studies).runs())
    configured = states["finished"] // 6
    assert states == {"finished": 6 * configured, "skipped": 4 * configured}
    skipped = next(run for run in verifications_of(studies).runs() if run.state == "skipped")
    assert skipped.result is not None
    said = skipped.result.recorded.to_flat()
    assert said == {"skipped": "the answer was clear after 6 seeds", "look": 6}
    assert plan_verification(studies, top=1, seeds=10).new_runs == 0
    named = ["study:demo-original", "study:demo-rmsnorm"]
    report = compare(read_studies(named, task="demo", storage=studies[0].database.address.full()))
    assert report.missing == ()
    for (
        answer
    ) in report.answers:  # on the looked-at seeds, by the test that the looks were planned with
        assert answer.comparison.seconds.pairs == 6
        assert answer.comparison.seconds.p == answer.comparison.seconds.others["t"]
        assert answer.comparison.decided


def test_an_unclear_answer_takes_all_planned_seeds(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=7, stop_early=True)
    verify_all(studies, lambda job: drawn_result(job, sd_time=0.3, sd_mql=0.05))
    assert {run.state for run in verifications_of(studies).runs()} == {"finished"}


def test_without_being_asked_a_verification_never_stops_early(studies: list[OpenStudy]) -> None:
    plan_verification(studies[:1], top=1, seeds=6)
    verify_all(
        studies[:1],
        lambda job: drawn_result(job, seconds=10.0 ** (1 + (job.number > 0)), mql=job.number),
    )
    assert {run.state for run in verifications_of(studies[:1]).runs()} == {"finished"}
    assert DEVICE.model == studies[0].device_model()


def test_a_result_that_came_too_late_is_shown_and_changes_no_figure(
    studies: list[OpenStudy], capsys: pytest.CaptureFixture[str]
) -> None:
    plan_verification(studies[:1], top=1, seeds=6)
    queue = verifications_of(studies[:1])
    run = queue.claim("frozen")
    assert run is not None
    queue.reap(worker="frozen")
    verify_all(studies[:1])
    before = [each.as_dict() for each in read_verified(studies[0])]
    late = TrialResult(TrialState.COMPLETE, (99.0, 9.0), Recorded(converged=True))
    assert not queue.finish(run, late)
    assert [each.as_dict() for each in read_verified(studies[0])] == before
    (document,) = verification_document(studies[:1])["studies"]
    shown = {each["trial"]: each["late"] for each in document["configurations"]}
    assert shown.pop(run.trial_number) == [json.loads(late.to_json())]
    assert set(map(len, shown.values())) <= {0}
    print_verified(studies[:1], ended="filled")
    assert (
        f"trial {run.trial_number}: results that came too late to count, kept: 1"
        in capsys.readouterr().out
    )
