"""Comparing studies: from a database and from archives alike, a verdict only where fresh seeds
allow one.

PostgreSQL has its comparison in verdict/test_verification.py.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.compared_studies import BOTH, Compared, with_runs
from tuner.cli.app import app
from tuner.display.text import in_html
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.report.comparison_files import page
from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.compare.answers import KNEES
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.explain import explain_study
from tuner.verdict.picks import picks_of


def test_verified_studies_get_a_verdict_in_a_plain_sentence(compared: Compared) -> None:
    report = compared.report()
    assert report.missing == ()
    assert [answer.comparison.question.family for answer in report.answers] == [
        "between variants",
        "retuned against default",
        "retuned against default",
    ]
    between, *own = report.answers
    ratio = between.comparison.seconds.estimate
    assert ratio is not None
    assert ratio.covers(0.6)
    # The points of two single searches: figures, and no claim about their variants.
    assert not between.comparison.seconds.claimed
    assert not between.comparison.mql.claimed
    assert between.sentence.startswith("retuned rmsnorm has 6.")
    assert between.sentence.endswith("of one search each, no claim between variants")
    assert between.as_dict()["wall_clock_s"]["no_verdict_because"] == KNEES
    for answer in own:
        assert answer.sentence.startswith(f"{answer.a} converges in 0.6")
        assert f"of the time of {answer.b}; MQL " in answer.sentence
        assert answer.sentence.endswith(
            (", not distinguishable", ", not distinguishable and surely close")
        )
        assert answer.comparison.seconds.claimed
        assert not answer.comparison.mql.claimed
    assert any(
        note.startswith("A point of a front against its default is secondary")
        for note in report.notes
    )


def test_the_table_has_the_teams_columns_for_default_and_retuned(compared: Compared) -> None:
    rows = compared.report().rows
    assert [(row.variant, row.hyperparameters) for row in rows] == [
        ("original", "default"),
        ("original", "retuned (knee)"),
        ("rmsnorm", "default"),
        ("rmsnorm", "retuned (knee)"),
    ]
    assert all(row.verified and row.runs == 10 and not row.misses for row in rows)
    assert set(rows[0].figures) == {"epochs", "total_time_s", "s_per_epoch", "val_loss", "test_mql"}
    assert rows[1].verdict == "the reference"
    assert rows[3].verdict == "none: not confirmed"
    assert rows[0].params["learning_rate"] == 1e-4


def test_archives_say_the_same_as_the_database(compared: Compared, tmp_path: Path) -> None:
    nowhere = f"sqlite:///{tmp_path}/none.db"
    from_files = compare(read_studies(compared.archives, task="demo", storage=nowhere))
    assert from_files.as_dict() == compared.report().as_dict()


def test_variants_may_be_given_with_commas_as_launch_takes_them(compared: Compared) -> None:
    assert [study.variant for study in compared.studies("original,rmsnorm")] == BOTH


@pytest.mark.parametrize("name", ["rmsnrm", "README.md"])
def test_a_misspelt_variant_is_not_a_database_that_is_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown variant '{name}'"):
        read_studies([name], task="demo", storage=f"sqlite:///{tmp_path}/none.db")


def test_pairs_too_few_for_any_claim_are_not_said_to_find_a_difference(compared: Compared) -> None:
    fewer = [
        with_runs(study, (run for run in study.runs if run.block < 5))
        for study in compared.studies()
    ]
    report = compare(fewer)
    assert "5 pairs of runs are too few for so many questions at once" in report.answers[0].sentence
    assert report.resolution == ""
    assert report.answers[1].comparison.seconds.detectable is None
    assert report.answers[0].comparison.seconds.detectable is None


def test_an_unverified_study_is_shown_marked_and_gets_no_verdict(compared: Compared) -> None:
    report = compared.report("original", "simple")
    assert {row.verified for row in report.rows if row.variant == "simple"} == {False}
    assert [answer.comparison.question.family for answer in report.answers] == [
        "retuned against default"
    ]
    assert any(
        "demo-simple: its knee configuration" in line and "is not verified" in line
        for line in report.missing
    )
    assert next(row.verdict for row in report.rows[::-1]) == "none: not confirmed"
    assert not any(volume.verified for volume in report.volumes)
    assert "Search budgets are unequal" in report.fairness[0]


def test_a_verification_under_way_gives_no_verdict_yet(compared: Compared) -> None:
    report = compared.report("original", "batchnorm")
    assert any("has 0 of 5 planned verification runs" in line for line in report.missing)
    assert all("batchnorm" not in answer.sentence for answer in report.answers)


@pytest.mark.parametrize("trials", [0, 1, 2])
def test_few_trials_say_what_is_missing(compared: Compared, trials: int) -> None:
    report = compared.report("original", f"study:few-{trials}")
    assert any(line.startswith(f"few-{trials}: ") for line in report.missing)
    assert len([row for row in report.rows if row.study == f"few-{trials}"]) == (2 if trials else 0)
    (study,) = compared.studies(f"study:few-{trials}")
    assert len(explain_study(study).missing) == 2
    alone = compared.report(f"study:few-{trials}")
    assert alone.answers == ()
    assert any("name a second one" in line for line in alone.missing)
    assert "<h1>" in page(alone)


def test_runs_that_missed_are_counted_in_the_table(compared: Compared) -> None:
    original, rmsnorm = compared.studies()
    spoiled = tuple(
        dataclasses.replace(
            run, result=dataclasses.replace(run.result, recorded=Recorded(stopped_by="diverged"))
        )
        if run.result and run.block < 2
        else run
        for run in rmsnorm.runs
    )
    report = compare([original, with_runs(rmsnorm, spoiled)])
    assert report.rows[3].misses == {"diverged": 2}
    assert not report.answers[0].comparison.seconds.claimed
    assert "missed 2 of 10 runs" in report.answers[0].sentence


def test_a_configuration_that_always_missed_shows_no_number(compared: Compared) -> None:
    original, rmsnorm = compared.studies()
    number = picks_of(original)["default"]
    spoiled = tuple(
        dataclasses.replace(
            run,
            result=dataclasses.replace(
                run.result, recorded=dataclasses.replace(run.result.recorded, converged=False)
            ),
        )
        if run.result and run.trial_number == number
        else run
        for run in original.runs
    )
    report = compare([with_runs(original, spoiled), rmsnorm])
    row = report.rows[0]
    assert (row.verified, row.misses, set(row.figures.values())) == (
        True,
        {"converged": 10},
        {None},
    )
    assert "no verdict on time (0 pairs of runs on the same seeds" in report.answers[1].sentence


def test_other_picks_and_mistakes(compared: Compared) -> None:
    assert compared.report(pick="mql").rows[1].hyperparameters == "retuned (mql)"
    assert any("its mql configuration" in line for line in compared.report(pick="mql").missing)
    with pytest.raises(UsageError, match="named twice"):
        compared.studies("original", "study:demo-original")
    with pytest.raises(UsageError, match="did you mean 'demo-original'"):
        compared.studies("study:demo-orignal")
    with pytest.raises(UsageError, match="there is no file"):
        compared.studies("nothing.json")
    one, two = compared.studies()
    other = dataclasses.replace(
        two, definition=dataclasses.replace(two.definition, data_hash="0" * 64)
    )
    with pytest.raises(UsageError, match="on different data"):
        compare([one, other])


def test_the_command_writes_table_page_and_document(compared: Compared, tmp_path: Path) -> None:
    table, shown = tmp_path / "results.csv", tmp_path / "report.html"
    arguments = ["compare", *BOTH, "--task", "demo", "--storage", compared.url]
    done = CliRunner().invoke(
        app, [*arguments, "--csv", str(table), "--html", str(shown), "--json"]
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["comparisons"][0]["wall_clock_s"]["distinguishable"] is False
    assert document["comparisons"][1]["wall_clock_s"]["distinguishable"] is True
    assert document["between_variants"][0]["claimed"] is False
    assert document["comparisons"][0]["test_mql"]["difference"]["low"] < 0.01
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [row["variant"] for row in rows] == ["original", "original", "rmsnorm", "rmsnorm"]
    assert (
        float(rows[0]["total_time_s_low"])
        < float(rows[0]["total_time_s"])
        < float(rows[0]["total_time_s_high"])
    )
    text = shown.read_text(encoding="utf-8")
    assert "retuned rmsnorm converges in" in text
    assert "Between variants, by whole searches" in text
    assert "src=" not in text.partition("Plotly.newPlot")[0].rpartition("<script")[2]
    assert all(each in text for each in map(in_html, document["answer"]["sentences"]))
    done = CliRunner().invoke(app, arguments)
    *sentences, more = done.stdout.splitlines()
    assert sentences == document["answer"]["sentences"]
    assert "--details" in more
    assert "converges in" in CliRunner().invoke(app, [*arguments, "--details"]).stdout


def timed_0(results: StudyResults) -> TrialRecord:
    last = results.complete[-1]
    assert last.values is not None
    number = 1 + max(record.number for record in results.records)
    return dataclasses.replace(last, number=number, values=(0.0, last.values[1]))


def test_understanding_a_study(compared: Compared) -> None:
    (study,) = compared.studies("original")
    found = explain_study(study)
    assert set(found.importances) == {"wall_clock_s", "test_mql"}
    for shares in found.importances.values():
        assert set(shares) == set(study.definition.space.ranges)
        assert sum(shares.values()) == pytest.approx(1.0)
    # A time of 0, which a stranger wrote into a database, has no logarithm.
    results = study.results
    more = dataclasses.replace(results, records=(*results.records, timed_0(results)))
    with_one = dataclasses.replace(study, results=more)
    assert explain_study(with_one).importances == found.importances
    assert found.ranking is not None
    assert found.ranking.spearman is not None
    assert found.ranking.spearman.estimate == pytest.approx(
        1.0
    )  # recorded trials have the same MQL on both
    assert found.ranking.price == 0.0
    assert found.ranking.verified == 2  # knee and default, which is on the front too
    assert sum(rate.trials for rate in found.learning_rates) == 12
    assert sum(rate.converged for rate in found.learning_rates) == 10
    done = CliRunner().invoke(
        app, ["explain", "original", "--task", "demo", "--storage", compared.url]
    )
    assert done.exit_code == 0, done.output
    assert "what test_mql depends on" in done.stdout
