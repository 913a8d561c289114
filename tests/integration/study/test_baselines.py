"""What forecasts without a network come to is said wherever a configuration is recommended."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.recorded_studies import record_study
from tuner.data.task import load_task
from tuner.export import load_best, render
from tuner.export.script_text import headline
from tuner.export.train import read_recipe
from tuner.launch.baselines import keep_baselines
from tuner.launch.request import Notes, Quiet, StopRequests
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
from tuner.study.baselines import ATTRIBUTE, Scored, Worth, in_words, read, told_all, worth
from tuner.study.open import open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare

LOW, HIGH = 1e-6, 1e6


def recorded(
    folder: Path, season: float, *, last: float = HIGH, mql_split: str = "test", **said: object
) -> str:
    storage = f"sqlite:///{folder}/tuner.db"
    name = record_study(storage, variant="rmsnorm", trials=14, said=said, mql_split=mql_split)
    known = (
        Scored(name="last_value", test_mql=last, val_mql=HIGH),
        Scored(name="seasonal_naive", test_mql=season, val_mql=season),
    )
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, name)
        study.optuna.set_user_attr(ATTRIBUTE, [each.stored() for each in known])
    return storage


def test_a_recommendation_that_loses_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = recorded(tmp_path, LOW)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    scores = {each.name: each.test_mql for each in best.baselines}
    assert scores == {"seasonal_naive": LOW, "last_value": HIGH}
    first = headline(best)[0]
    assert first.startswith(
        "Not worth the training: this configuration loses to a baseline, the value of a season ago"
    )
    assert render(best, "toml").splitlines()[0] == f"# {first}"
    assert json.loads(render(best, "json"))["baselines"] == scores
    assert f"{json.loads(render(best, 'json'))['worth']}." == first
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        print_summary([study], ["tuner", "launch"], ended="filled")
        said = " ".join(capsys.readouterr().out.split())
        assert "without a network: the value of a season ago 1e-06" in said
        assert said.startswith("Not worth the training: the best of the front loses to a baseline")
        report = compare([snapshot(study)])
    assert "loses to a baseline" in report.without_network[0]
    assert report.answer[0].startswith("Not worth the training: the best of rmsnorm loses")
    assert report.as_dict()["without_network"] == list(report.without_network)
    write_html(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.index("loses to a baseline") < page.index("Without a network"), "that comes first"


def test_one_that_wins_has_them_beside_it(tmp_path: Path) -> None:
    storage = recorded(tmp_path, HIGH / 2)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="mql")
    assert "too few windows" in best.worth, "nobody recorded runs of windows"
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
    assert "No difference shown" in report.without_network[0]


def test_of_a_search_by_validation_each_figure_stands_beside_its_split(tmp_path: Path) -> None:
    storage = recorded(tmp_path, LOW, last=1.25, mql_split="val", contaminated=True, test_mql=1.5)
    best = load_best("rmsnorm", task="demo", storage=storage, pick="knee", values="expected")
    assert "validation MQL" in best.worth
    assert "Each MQL in this is a validation MQL." in best.why
    (line,) = [each for each in headline(best) if each.startswith("Without a network")]
    validation, _, test = line.partition("; ")
    assert "validation MQL: the value of a season ago 1e-06" in validation
    assert test == "test MQL: the value of a season ago 1e-06, the last value 1.25."
    by_test = json.loads(render(best, "json"))["test_baselines"]
    assert by_test == {"seasonal_naive": LOW, "last_value": 1.25}
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
    assert '"text":"validation MQL"' in front
    assert ">validation MQL</text>" in page
    assert not cell(report.rows[0], "test_mql").endswith(" (validation MQL)")
    assert "1e-06 test MQL" in report.without_network[0], "the baseline of the split that it is of"


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
    assert best.baselines == ()
    assert "network" not in render(best, "toml").lower()


def test_a_difference_is_shown_by_runs_of_windows_or_not_at_all() -> None:
    flat = (1.0, 1.1, 0.9, 1.0, 1.05, 0.95)
    noisy = (0.6, 1.5, 0.5, 1.3, 0.9, 1.1)
    naive = Scored(name="last_value", test_mql=1.0, test_runs=flat)
    ets = Scored(name="auto_ets", test_mql=0.98, test_runs=noisy)

    def said(mql: float, runs: Sequence[float], *baselines: Scored) -> Worth:
        found = worth(mql, runs, baselines)
        assert found is not None
        return found

    better = [each * 0.8 for each in flat]
    assert said(0.8, better, naive).better is True
    assert "AutoETS" in said(0.8, better, naive, ets).sentence
    assert said(0.8, better, naive, ets).better is None, "it must beat each"
    worse = said(1.3, [each * 1.3 for each in flat], ets, naive)
    assert worse.better is False
    assert "the last value" in worse.sentence, "the simplest of those that are as good"
    line = Scored(name="last_lags", test_mql=0.98, test_runs=tuple(0.98 * each for each in flat))
    simple = Scored(name="last_value", test_mql=0.985, test_runs=noisy)
    lost = said(1.08, [each * 1.08 for each in flat], simple, line)
    assert (lost.better, lost.named) == (False, "last_value")
    assert "loses to a baseline, a line through the last rows: 1.08 against 0.98" in lost.sentence
    assert lost.sentence.endswith("; the last value is simpler, and not shown to be worse")
    assert said(1.0, (), naive).better is False
    assert said(0.999, (), naive).better is None
    lacking = Scored(name="chronos", test_mql=2.0, lacks=(0.05, 0.95))
    assert lacking.told("test_mql") == "Chronos 2 (gives no 0.05, 0.95)"
    late = Scored(name="auto_arima", not_run="would take 41 min")
    assert worth(1.0, (), [late]) is None
    assert told_all([late, naive], "test_mql") == [
        "the last value 1",
        "AutoARIMA not run: would take 41 min",
    ]
    assert in_words("rows_ago_11") == "the value of 11 rows ago"
    assert in_words("other") == "other"


def test_what_somebody_stored_as_baselines_is_read_or_left() -> None:
    assert read([{"name": "mstl", "test_mql": 1.0}])[0].test_mql == 1.0
    for wrong in ("no", [{"name": "mstl", "more": 1}], [{"name": 3}], {"a": 1}, [1e999]):
        assert read(wrong) == ()


def test_the_end_of_a_launch_scores_them_once(tmp_path: Path) -> None:
    more = "--cpu --trials 2 --max-epochs 1 --reruns 0 --sampler random --json"
    done = run(
        *("launch", "--variant", "rmsnorm", "--task", "demo", *more.split()),
        folder=tmp_path,
        environment={"TMPDIR": str(tmp_path)},
    )
    assert done.code == 0, done.err
    storage = f"sqlite:///{tmp_path}/storage/tuner.db"
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        results = read_results(study)
        first = results.records[0].recorded
        assert len(first.mql_runs or []) >= 4
        assert set(first.column_test_mql) == set(first.column_val_mql) != set()
        found = {each.name: each for each in results.baselines}
        assert {"last_value", "seasonal_naive", "nlinear"} <= set(found)
        for each in found.values():
            assert len(each.test_runs) == len(first.mql_runs or [])
            assert None not in (each.test_mql, each.val_mql, each.fit_s, each.forecast_s)
        stop, notes = StopRequests(), Notes(Quiet())
        keep = functools.partial(keep_baselines, [study], load_task("demo"), None, None, (), notes)
        keep(stop)
        assert notes.lines == [], "nothing is scored twice"
        study.optuna.set_user_attr(ATTRIBUTE, [])
        stop.ask()
        keep(stop)
        assert read_results(study).baselines == (), "one that was interrupted leaves it to the next"


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
