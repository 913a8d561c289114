"""The runs of a verification: what they say, what misses, what stops and goes on."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter

import pytest
from optuna.trial import TrialState

from tests.support.drawn_verifications import DEVICE, drawn_result, missed, verify_all
from tests.support.present import present
from tuner.devices import CpuCores
from tuner.errors import UsageError
from tuner.export import load_best
from tuner.export.script_text import headline
from tuner.record import Recorded
from tuner.report.study_status import status_of
from tuner.report.terminal.verification import print_verified, verification_document
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.picks import picks
from tuner.verdict.runs_model import front_of_runs
from tuner.verdict.verification_plan import plan_verification
from tuner.verdict.verified import verifications_of, verified_in
from tuner.worker.loop import Worker
from tuner.worker.trial_source import VerificationSource


def test_verified_figures_are_those_of_the_fresh_runs(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=6)
    results = read_results(studies[1])
    knee = picks(results, front_of_runs(results))["knee"]
    assert present(verified_in(snapshot(studies[1])).get(knee)).as_dict() is None
    verify_all(studies)
    found = present(present(verified_in(snapshot(studies[1])).get(knee)).as_dict())
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
    for each in verified_in(snapshot(studies[0])).values():
        assert each.misses == {"epoch_limit": 1}
        assert each.seconds is not None
        assert (each.seconds.runs, len(each.runs)) == (5, 6)
        assert first not in each.sample().seconds
        assert (each.sample().runs, each.sample().misses) == (6, 1)
        assert each.without_figures == ""


@pytest.mark.parametrize("what", ["missed", "disturbed"])
def test_runs_that_give_no_figures_are_told_all_the_same(
    studies: list[OpenStudy], what: str
) -> None:
    """Not that it did not run on fresh seeds: it did, and came to nothing, or to no time."""
    plan_verification(studies[:1], top=1, seeds=6)

    def disturbed(job: TrialJob) -> TrialResult:
        result = drawn_result(job)
        recorded = dataclasses.replace(result.recorded, contaminated=True)
        return TrialResult(result.state, result.values, recorded)

    verify_all(studies[:1], missed if what == "missed" else disturbed)
    url = studies[0].database.address.full()
    for each in verified_in(snapshot(studies[0])).values():
        assert each.as_dict() is None
        found = load_best(study=studies[0].name, trial=each.trial_number, storage=url)
        said = next(line for line in headline(found) if line.startswith("NOT VERIFIED"))
        if what == "missed":
            assert said == ("NOT VERIFIED: 6 of 6 runs on fresh seeds missed (epoch limit 6).")
        else:
            assert each.mql is not None
            assert f"its test MQL is {each.mql:.4f}; every timing was disturbed." in said


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
    for each in verified_in(snapshot(studies[0])).values():
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
    before = {run.work_id: run.result for run in queue.runs() if run.state == "finished"}
    assert len(before) == 4
    assert queue.reap(worker="first") == 1
    done.append(("the plug is back", -1, None))
    verify_all(studies, run, name="second")
    after = queue.runs()
    assert {run.state for run in after} == {"finished"}
    assert {run.work_id: run.result for run in after if run.work_id in before} == before
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
    assert all(each.misses == {"error": 1} for each in verified_in(snapshot(studies[0])).values())


def test_only_the_studys_own_device_model_verifies(studies: list[OpenStudy]) -> None:
    plan_verification(studies, top=1, seeds=1)
    with pytest.raises(UsageError, match="times of different devices do not compare"):
        Worker(studies, CpuCores((0,)), drawn_result, source=VerificationSource).run()
    assert {run.state for run in verifications_of(studies).runs()} == {"waiting"}


def test_a_verification_makes_all_its_planned_runs(studies: list[OpenStudy]) -> None:
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
    before = [each.as_dict() for each in verified_in(snapshot(studies[0])).values()]
    late = TrialResult(TrialState.COMPLETE, (99.0, 9.0), Recorded(converged=True))
    assert not queue.finish(run, late)
    assert [each.as_dict() for each in verified_in(snapshot(studies[0])).values()] == before
    (document,) = verification_document(studies[:1])["studies"]
    shown = {each["trial"]: each["late"] for each in document["configurations"]}
    assert shown.pop(run.trial_number) == [json.loads(late.to_json())]
    assert set(map(len, shown.values())) <= {0}
    print_verified(studies[:1], ended="filled")
    assert (
        f"trial {run.trial_number}: results that came too late to count, kept: 1"
        in capsys.readouterr().out
    )
