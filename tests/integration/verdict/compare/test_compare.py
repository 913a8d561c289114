"""Comparing studies: from a database and from archives alike, a verdict only where fresh seeds
allow one.

PostgreSQL has its comparison in verdict/test_verification.py.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.compared_studies import BOTH, Compared, with_runs
from tuner.cli.app import app
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.report.comparison_files import page, write_csv
from tuner.study.results import StudyResults, TrialRecord
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.explain import explain_study
from tuner.verdict.picks import picks_of
from tuner.verdict.stats.intervals import Interval


def test_points_of_fronts_have_figures_and_the_way_to_a_claim(compared: Compared) -> None:
    report = compared.report()
    assert report.missing == ()
    (note,) = (each for each in report.notes if "tuner verify --confirm" in each)
    assert note.startswith("No claim follows from the figures of single points of a front")
    default, retuned = report.rows[2:]
    for row, seconds in ((default, 9.0), (retuned, 6.0)):
        time, mql = row.figures["total_time_s"], row.figures["test_mql"]
        assert isinstance(time, Interval)
        assert isinstance(mql, Interval)
        assert time.estimate == pytest.approx(seconds, rel=0.1)
        assert time.runs == 10
        assert mql.low < mql.estimate < mql.high
    (between,) = report.between
    assert not between.claimed
    # Where nothing but defaults is verified, there is no point of a front to speak of.
    number = picks_of(report.studies[0])["default"]
    (alone,) = compared.studies("original")
    only_default = with_runs(alone, (run for run in alone.runs if run.trial_number == number))
    assert not any("--confirm" in each for each in compare([only_default]).notes)


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


def test_an_unverified_study_is_shown_marked_and_gets_no_verdict(compared: Compared) -> None:
    report = compared.report("original", "simple")
    assert {row.verified for row in report.rows if row.variant == "simple"} == {False}
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
    assert not any(row.verified for row in report.rows if row.variant == "batchnorm")


@pytest.mark.parametrize("trials", [0, 1, 2])
def test_few_trials_say_what_is_missing(compared: Compared, trials: int) -> None:
    report = compared.report("original", f"study:few-{trials}")
    assert any(line.startswith(f"few-{trials}: ") for line in report.missing)
    assert len([row for row in report.rows if row.study == f"few-{trials}"]) == (2 if trials else 0)
    (study,) = compared.studies(f"study:few-{trials}")
    assert len(explain_study(study).missing) == 2
    alone = compared.report(f"study:few-{trials}")
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
    time = report.rows[3].figures["total_time_s"]
    assert isinstance(time, Interval)
    assert time.runs == 8


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
    assert document["between_variants"][0]["claimed"] is False
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert [row["variant"] for row in rows] == ["original", "original", "rmsnorm", "rmsnorm"]
    assert (
        float(rows[0]["total_time_s_low"])
        < float(rows[0]["total_time_s"])
        < float(rows[0]["total_time_s_high"])
    )
    text = shown.read_text(encoding="utf-8")
    assert "tuner verify --confirm tests what is recommended" in text
    assert "Between variants, by whole searches" in text
    assert all(each in html.unescape(text) for each in document["answer"]["sentences"])
    done = CliRunner().invoke(app, arguments)
    *sentences, more = done.stdout.splitlines()
    assert sentences == document["answer"]["sentences"]
    assert "--details" in more
    details = CliRunner().invoke(app, [*arguments, "--details"]).stdout
    assert "No claim follows from the figures of single points of a front" in details


def test_the_csv_has_joules_and_cost_of_fresh_seeds(compared: Compared, tmp_path: Path) -> None:
    """The reference's runs at 3.6 an hour, one of them too short for joules; the other's none."""
    one, other = compared.studies()
    short = {"energy_j": None, "energy_unresolved": True}
    runs = []
    for number, run in enumerate(one.runs):
        assert run.result is not None
        more = {"energy_j": 5000.0 + number, "total_s": 2000.0} if number else short
        runs.append(dataclasses.replace(run, result=run.result.noting(**more)))
    priced = dataclasses.replace(
        with_runs(one, runs), policy=one.policy.but(price_per_gpu_hour=3.6)
    )
    write_csv(compare([priced, other]), tmp_path / "table.csv")
    rows = list(csv.DictReader((tmp_path / "table.csv").open(encoding="utf-8")))
    for row in rows[:2]:
        assert 5000 < float(row["energy_j_low"]) <= float(row["energy_j"]) < 5020
        assert float(row["cost"]) == pytest.approx(2.0)
    assert {(row["energy_j"], row["cost"]) for row in rows[2:]} == {("", "")}


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
