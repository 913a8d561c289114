"""An ablation from its plan to its lines, on every database: what one value made is known here."""

from __future__ import annotations

import dataclasses

import pytest
from typer.testing import CliRunner

from tests.support.drawn_verifications import drawn_result, verify_all
from tests.support.planned_confirmations import opened
from tuner.cli.app import app
from tuner.report.terminal.explanations import ablation_lines, print_explanations
from tuner.storage.database import Database
from tuner.storage.records import TrialResult
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.ablation import Ablation, ablation_of, ablation_sentence, plan_ablation
from tuner.verdict.confirmation_plan import plan_confirmation
from tuner.verdict.explain import explain_study
from tuner.verdict.known_runs import runs_of
from tuner.verdict.retune_cost import spent_on
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.verification_plan import seen_seeds
from tuner.verdict.verified import verified_in

NAME = "demo-rmsnorm"
SEEDS = 8


def slower_by_learning_rate(job: TrialJob) -> TrialResult:
    """What has the default's learning rate takes three times as long; nothing else matters."""
    usual = job.hyperparameters.learning_rate == job.definition.defaults.learning_rate
    return drawn_result(job, seconds=6.0 if usual else 2.0, sd_time=0.02, sd_mql=0.0)


def cut_off_by_learning_rate(job: TrialJob) -> TrialResult:
    """What has the default's learning rate is cut off by a limit, at three times the time."""
    drawn = slower_by_learning_rate(job)
    usual = job.hyperparameters.learning_rate == job.definition.defaults.learning_rate
    if not usual:
        return drawn
    cut = dataclasses.replace(drawn.recorded, stopped_by="epoch_limit", converged=False)
    return dataclasses.replace(drawn, recorded=cut)


def disturbed_where_cut_off(job: TrialJob) -> TrialResult:
    drawn = cut_off_by_learning_rate(job)
    disturbed = dataclasses.replace(drawn.recorded, contaminated=not drawn.recorded.converged)
    return dataclasses.replace(drawn, recorded=disturbed)


def never_converged(job: TrialJob) -> TrialResult:
    drawn = drawn_result(job)
    diverged = dataclasses.replace(drawn.recorded, stopped_by="diverged", converged=False)
    return dataclasses.replace(drawn, recorded=diverged)


def found(database: Database) -> Ablation:
    (study,) = opened(database, NAME)
    there = ablation_of(snapshot(study))
    assert there is not None
    return there


def test_the_value_that_made_the_gain_is_named_first(
    unverified: Database, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (study,) = opened(unverified, NAME)
    before = seen_seeds(unverified)
    planned = plan_ablation([study], seeds=SEEDS, shuffle_seed=1)
    runs = study.verifications.runs()
    recommended = recommended_trial(snapshot(study))
    assert planned.new_runs == len(runs)
    assert {run.trial_number for run in runs} == {recommended}
    assert not {run.seed for run in runs} & before
    blocks: dict[int, set[str]] = {}
    for run in runs:
        blocks.setdefault(run.block, set()).add(str(sorted(run.params.items())))
    assert len(blocks) == SEEDS
    assert len({frozenset(block) for block in blocks.values()}) == 1, "each runs in each block"
    assert plan_ablation([study], seeds=SEEDS).new_runs == 0, "given again it plans nothing"

    known = runs_of(snapshot(study))
    verify_all([study], slower_by_learning_rate)
    there = found(unverified)
    assert there.complete
    first, *others, whole = there.rows
    assert (first.name, whole.name) == ("learning_rate", "")
    for row in (first, whole):
        assert row.time_ratio.low < row.time_ratio.estimate == pytest.approx(3.0, rel=0.1)
    assert others
    assert all(row.time_ratio.estimate == pytest.approx(1.0, abs=0.1) for row in others)
    assert whole.mql_ratio.estimate == pytest.approx(1.0)
    assert runs_of(snapshot(study)) == known, "it chooses nothing"
    assert verified_in(snapshot(study)) == {}
    assert spent_on([snapshot(study)]).reevaluation_runs == 0
    assert recommended_trial(snapshot(study)) == recommended

    plan_confirmation([study], seeds=5)
    verify_all([study], slower_by_learning_rate)
    assert plan_confirmation([study], seeds=5).new_runs == 0
    # Now it is confirmed, and nothing else is otherwise.
    assert not there.confirmed
    there = dataclasses.replace(there, confirmed=True)
    assert found(unverified) == there
    plan_ablation([study], seeds=SEEDS)
    assert plan_confirmation([study], seeds=5).new_runs == 0, "an ablation is no news to it"

    file = tmp_path_factory.mktemp("exported") / "study.json.gz"
    write_archive(archive_of(study), file)
    assert ablation_of(snapshot(read_archive(file))) == there


def test_its_lines_say_what_was_set_back_and_how_much_it_cost(
    unverified: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    verify_all([study], slower_by_learning_rate)
    there = found(unverified)
    heading, first, *_, last = ablation_lines(there)
    assert heading.startswith(
        f"{NAME}: trial {there.trial} (not confirmed) with one value set back"
    )
    assert first.strip().startswith("learning_rate ")
    assert "x the time" in first
    assert last.strip().startswith("all of them: the default")
    print_explanations([explain_study(snapshot(study).with_runs_read())])
    assert first in capsys.readouterr().out


def test_what_did_not_converge_is_said(unverified: Database) -> None:
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    verify_all([study], slower_by_learning_rate)
    there = found(unverified)
    (first, *others, whole) = there.rows
    missed = dataclasses.replace(there, rows=(dataclasses.replace(first, missed=2), whole))
    short = dataclasses.replace(missed, unsaid=tuple(row.name for row in others))
    for said in ("\n".join(ablation_lines(short)), ablation_sentence(short)):
        assert said.count(", 2 did not converge") == 1
        for row in others:
            assert f"{row.name}: too few of its runs converged undisturbed" in said
    under_way = dataclasses.replace(short, complete=False)
    assert "too few of its runs" not in ablation_sentence(under_way)
    assert ", not all finished" in ablation_sentence(under_way)


def test_what_a_limit_cuts_off_takes_at_least_so_long(unverified: Database) -> None:
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    verify_all([study], cut_off_by_learning_rate)
    there = found(unverified)
    first, whole = there.cut_off
    assert (first.name, whole.name) == ("learning_rate", "")
    for row in (first, whole):
        assert 2.8 < row.least < 3.0, "below the three times at which it was cut off"
        assert (row.cut, row.runs) == (SEEDS, SEEDS)
    assert first.name not in (*there.unsaid, *(row.name for row in there.rows))
    told = there.as_dict()["cut_off"][0]
    assert (told["set_back"], told["time_ratio_at_least"]) == ("learning_rate", first.least)
    said = f"at least {first.least:.2f} x the time (8 of 8 runs cut off before they converged)"
    _, line, *_, last = ablation_lines(there)
    assert "learning_rate " in line
    assert said in line
    assert last.strip().startswith("all of them: the default")
    assert f": {said};" in ablation_sentence(there)


def test_where_a_quarter_was_cut_off_the_others_are_not_told_as_if_they_were_all(
    unverified: Database,
) -> None:
    """Six of eight converge, in three times the time; the slow ones are cut off at twelve times."""
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    slow = {run.seed for run in study.verifications.runs() if run.block in (2, 5)}

    def run(job: TrialJob) -> TrialResult:
        usual = job.hyperparameters.learning_rate == job.definition.defaults.learning_rate
        if not usual or job.seed not in slow:
            return slower_by_learning_rate(job)
        drawn = cut_off_by_learning_rate(job)
        assert drawn.values is not None
        return dataclasses.replace(drawn, values=(4 * drawn.values[0], drawn.values[1]))

    verify_all([study], run)
    there = found(unverified)
    first, _ = there.cut_off
    assert (first.name, first.cut, first.runs) == ("learning_rate", 2, SEEDS)
    assert first.least > 2.0
    assert all(row.name not in ("learning_rate", "") for row in there.rows)


def test_a_disturbed_time_is_no_bound_either(unverified: Database) -> None:
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    verify_all([study], disturbed_where_cut_off)
    there = found(unverified)
    assert there.cut_off == ()
    assert there.unsaid == ("learning_rate",)


def test_an_ablation_of_which_nothing_converged_says_so_when_it_is_over(
    unverified: Database,
) -> None:
    (study,) = opened(unverified, NAME)
    plan_ablation([study], seeds=SEEDS)
    before = found(unverified)
    assert "is being taken apart; too few runs are finished" in ablation_sentence(before)
    verify_all([study], never_converged)
    there = found(unverified)
    assert there.complete
    assert ablation_sentence(there) == (
        f"{NAME}: of trial {there.trial}, taken apart, too few runs converged undisturbed"
    )
    assert ablation_lines(there) == [ablation_sentence(there)]


def test_flags_that_do_not_go_with_it_are_one_line() -> None:
    for flags in (["--confirm"], ["--top", "3"], ["--against", "original"], ["--stop-early"]):
        ran = CliRunner().invoke(app, ["verify", "--variant", "rmsnorm", "--ablate", *flags])
        assert f"{flags[0]} and --ablate exclude each other" in str(ran.exception)
