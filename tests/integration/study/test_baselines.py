"""What forecasts without a network come to is said wherever a configuration is recommended."""

from __future__ import annotations

import csv
import dataclasses
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.recorded_studies import record_study
from tuner.export import load_best, render
from tuner.export.script_text import headline
from tuner.export.train import read_recipe
from tuner.record import Recorded
from tuner.report.comparison_files import cell, write_csv, write_html
from tuner.report.dashboard.additions import Additions
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.series import front_series
from tuner.report.study_status import read_trial
from tuner.report.terminal.comparison import print_report
from tuner.report.terminal.tables import print_summary
from tuner.report.terminal.trial_sections import print_trial
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.results import baselines_of, loses, read_results
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare

LOW, HIGH = 1e-6, 1e6


def recorded(folder: Path, season: float, *, mql_split: str = "test", **more: object) -> str:
    said = {
        f"baseline_{split}_mql/{name}": mql
        for split in ("test", "val")
        for name, mql in (("last_value", HIGH), ("seasonal_naive", season))
    }
    storage = f"sqlite:///{folder}/tuner.db"
    record_study(storage, variant="rmsnorm", trials=14, said=said | more, mql_split=mql_split)
    return storage


def test_a_recommendation_that_loses_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = recorded(tmp_path, LOW)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    assert best.baselines == {"seasonal_naive": LOW, "last_value": HIGH}
    first = headline(best)[0]
    assert first.startswith("This configuration loses to a baseline: the value of a season ago")
    assert render(best, "toml").splitlines()[0] == f"# {first}"
    assert json.loads(render(best, "json"))["baselines"] == best.baselines
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        print_summary([study], ["tuner", "launch"], ended="filled")
        said = " ".join(capsys.readouterr().out.split())
        assert "without a network: the value of a season ago 1e-06" in said
        assert "The best of the front loses to a baseline" in said
        report = compare([snapshot(study)])
    assert "loses to a baseline" in report.without_network[0]
    assert report.as_dict()["without_network"] == list(report.without_network)
    write_html(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.index("Without a network") < page.index("loses to a baseline")


def test_one_that_wins_has_them_beside_it(tmp_path: Path) -> None:
    storage = recorded(tmp_path, HIGH / 2)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    assert best.loses == ""
    assert "loses" not in render(best, "toml")
    beside = "Without a network, on the same windows, test MQL: the value of a season ago"
    assert beside in render(best, "toml")
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        results = read_results(study)
        figure = pareto_figure([front_series(results, "rmsnorm")]).to_dict()
        report = compare([snapshot(study)])
    texts = [each["text"] for each in figure["layout"]["annotations"]]
    assert any("the last value" in text for text in texts)
    assert len(report.without_network) == 1


def test_of_a_search_by_validation_each_figure_stands_beside_its_split(tmp_path: Path) -> None:
    more: dict[str, object] = {"test_mql": 1.5, "baseline_test_mql/last_value": 1.25}
    storage = recorded(tmp_path, LOW, mql_split="val", contaminated=True, **more)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="knee", values="expected")
    assert best.loses.partition(";")[0].endswith("(validation MQL)")
    assert "Each MQL in this is a validation MQL." in best.why
    (line,) = [each for each in headline(best) if each.startswith("Without a network")]
    validation, _, test = line.partition("; ")
    assert "validation MQL: the value of a season ago 0.0000" in validation
    assert test == "test MQL: the value of a season ago 0.0000, the last value 1.2500."
    assert json.loads(render(best, "json"))["test_baselines"] == best.test_baselines
    file = tmp_path / "best.toml"
    file.write_text(render(best, "toml"), encoding="utf-8")
    assert read_recipe(file).hyperparameters == best.hyperparameters


def test_a_comparison_marks_what_is_disturbed_not_verified_or_of_another_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = recorded(tmp_path, LOW, mql_split="val", contaminated=True, test_mql=1.5)
    with closing(open_database(parse_url(storage), create=False)) as database:
        opened = open_study(database, "demo-rmsnorm")
        report = compare([snapshot(opened)])
        figures = Additions(database, database.optuna, StudyFiles())(opened.study_id)
        print_report(report)
        write_html(report, tmp_path / "report.html")
    front = next(text for key, text in figures.items() if "plot_data:front" in key)
    page, said = (tmp_path / "report.html").read_text(), " ".join(capsys.readouterr().out.split())
    assert "nothing is verified" in page
    assert "Medians over fresh seeds" not in page
    assert all(cell(row, "total_time_s").endswith(" !") for row in report.rows)
    volume = "by validation MQL, not verified; 13 of 13 timings are contaminated)"
    for text in (said, page):
        assert "! timing contaminated" in text.replace("  ", " ")
        assert volume in text
    for drawn in (front, page):
        assert '"text":"validation MQL"' in drawn
    assert not cell(report.rows[0], "test_mql").endswith(" (validation MQL)")
    assert "(test MQL)" in report.without_network[0], "the baseline of the split that it is of"


def test_whatever_a_written_configuration_says_it_is_read_again(tmp_path: Path) -> None:
    best = load_best("rmsnorm", task="demo", storage=recorded(tmp_path, HIGH), pick="mql")
    whole = dataclasses.replace(
        best,
        confirmed={"sentence": "as good as its default"},
        expected={"wall_clock_s": 1.0, "test_mql": 2.0},
        recommendation={"margin": 0.01},
    )
    said = {key for key, value in whole.as_dict().items() if value is None}
    assert said <= {"verified"}, "all but that is in the file"
    file = tmp_path / "best.toml"
    file.write_text(render(whole, "toml"), encoding="utf-8")
    assert read_recipe(file).hyperparameters == best.hyperparameters


def test_studies_without_them_say_nothing(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/tuner.db"
    record_study(storage, variant="rmsnorm", trials=3)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    assert best.baselines == {}
    assert "network" not in render(best, "toml").lower()


def test_equal_is_no_better_and_unknown_names_stand_for_themselves() -> None:
    assert loses(1.0, {"last_value": 1.0}) != ""
    assert loses(0.999, {"last_value": 1.0}) == ""
    assert "other comes to 1" in loses(2.0, {"other": 1.0}).replace(
        ", with the errors that it had on the training windows,", ""
    )
    assert baselines_of([], "test_mql") == {}


def test_a_launch_records_them_with_the_default_alone(tmp_path: Path) -> None:
    more = "--cpu --trials 2 --max-epochs 1 --reruns 0 --sampler random --json"
    done = run(
        *("launch", "--variant", "rmsnorm", "--task", "demo", *more.split()),
        folder=tmp_path,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert done.code == 0, done.err
    storage = f"sqlite:///{tmp_path}/storage/tuner.db"
    with closing(open_database(parse_url(storage), create=False)) as database:
        records = read_results(open_study(database, "demo-rmsnorm")).records
    first, second = (record.recorded for record in records)
    assert set(first.baseline_test_mql) == {"last_value", "seasonal_naive"}
    assert set(first.column_test_mql) == set(first.column_val_mql) != set()
    assert second.baseline_test_mql == {}
    assert Recorded.from_flat(first.to_flat()) == first


def test_each_target_column_has_its_score_in_tables_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {f"{split}_mql_of/{name}": 0.25 for split in ("test", "val") for name in ("a", "b")}
    storage = f"sqlite:///{tmp_path}/tuner.db"
    record_study(storage, variant="rmsnorm", trials=14, said=said)
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        print_summary([study], ["tuner", "launch"], ended="filled")
        assert "by target column, in its units: a 0.25, b 0.25" in capsys.readouterr().out
        print_trial(read_trial(study, 0))
        assert "test_mql_of/b" in capsys.readouterr().out
        report = compare([snapshot(study)])
    assert report.rows[0].as_dict()["columns"] == {"a": 0.25, "b": 0.25}
    write_html(report, tmp_path / "report.html")
    assert "default: a 0.25, b 0.25" in (tmp_path / "report.html").read_text()
    write_csv(report, tmp_path / "report.csv")
    (row, *_) = csv.DictReader((tmp_path / "report.csv").open())
    assert (row["test_mql_of/a"], row["test_mql_of/a_low"]) == ("0.25", "")
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    assert "Test MQL by target column, in its units: a 0.25, b 0.25." in headline(best)
