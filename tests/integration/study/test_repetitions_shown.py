"""A configuration that ran four times, once with luck, is shown with its medians and its number of
runs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import tomllib
from pathlib import Path

import pytest

from tests.support.repeated_configurations import (
    LUCKY,
    MEDIANS,
    NAME,
    NUMBERS,
    REPEATED,
    VALUES,
    on_front,
    with_runs,
)
from tuner.export import load_best, render
from tuner.export.train import read_recipe
from tuner.report.dashboard.additions import standing
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.study_status import read_trial, status_of
from tuner.report.terminal.tables import print_status, print_summary
from tuner.report.terminal.trial_sections import print_trial
from tuner.spec.margin import LEAST_RUNS
from tuner.spec.membership import seed_of_trial
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, write_archive
from tuner.study.results import read_results
from tuner.study.transfer import restore


def test_best_takes_no_luck_and_says_what_it_counts(repeated: Archive, tmp_path: Path) -> None:
    file = tmp_path / "study.json.gz"
    write_archive(repeated, file)
    for pick in ("mql", "time", "knee"):
        config = load_best(study=NAME, pick=pick, values="single", storage=str(file))
        assert config.trial not in (LUCKY, *NUMBERS[1:])
        assert tuple(config.values.values()) != VALUES[2]
    write_archive(on_front(repeated), file)
    config = load_best(study=NAME, pick="time", values="single", storage=str(file))
    root = repeated.membership.seed_root
    assert config.trial == REPEATED
    assert tuple(config.values.values()) == pytest.approx((0.125, MEDIANS[1]))
    document = json.loads(render(config, "json"))
    assert document["provenance"]["runs"] == 4
    assert document["provenance"]["trials"] == list(NUMBERS)
    seeds = [seed_of_trial(number, root=root) for number in NUMBERS]
    assert document["provenance"]["seeds"] == seeds
    assert "medians where a configuration has several" in config.why
    toml = render(config, "toml")
    assert "medians of 4 runs (trials 5, 16, 17, 18)" in toml.partition("\n\n")[0]
    assert "NOT VERIFIED: these runs are of the search" in toml
    assert tomllib.loads(toml)["provenance"]["runs"] == 4
    (tmp_path / "best.toml").write_text(toml, encoding="utf-8")
    assert read_recipe(tmp_path / "best.toml").origin["provenance"]["trials"] == list(NUMBERS)
    script = render(config, "python")
    assert str(seeds) in script


def test_a_trial_by_its_number_is_itself_and_says_that_there_are_others(
    repeated: Archive, tmp_path: Path
) -> None:
    file = tmp_path / "study.json.gz"
    write_archive(repeated, file)
    config = load_best(study=NAME, trial=LUCKY, storage=str(file))
    assert tuple(config.values.values()) == VALUES[2]
    assert config.provenance["seeds"] == [seed_of_trial(LUCKY, root=repeated.membership.seed_root)]
    (note,) = config.notes
    assert "trial 17 is one of 4 runs of its configuration (trials 5, 16, 17, 18)" in note
    assert "medians are 50.000 s and MQL 1.1500" in note
    assert load_best(study=NAME, trial=0, storage=str(file)).notes == ()


def test_every_list_of_trials_has_all_and_what_shows_the_front_counts(
    repeated: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    policy = repeated.policy.but(price_per_gpu_hour=7.2)
    opened = restore(database, dataclasses.replace(on_front(repeated), policy=policy), NAME)
    results = read_results(opened)
    status = status_of(opened)
    assert status["cost"] == pytest.approx(sum(each.cost or 0.0 for each in results.records))
    print_status([opened])
    head, line = capsys.readouterr().out.splitlines()[1:3]
    assert "cost" in head
    assert f"{status['cost']:.4g}" in line
    row = next(row for row in status["front"] if row["trial"] == REPEATED)
    assert (row["runs"], row["trials"]) == (4, list(NUMBERS))
    assert all("runs" not in row for row in status["front"] if row["trial"] != REPEATED)
    assert status["trials"]["complete"] == len(results.complete)
    print_summary([opened], ["tuner", "launch"], ended="filled")
    printed = (line.split() for line in capsys.readouterr().out.splitlines())
    assert [line[-2:] for line in printed if line[:1] == ["5"]] == [["4", "runs"]]
    note = standing(opened, results)
    assert "its own front is that of the luckiest" in note
    files = StudyFiles()
    announced = files.attributes(opened, results)
    names = {json.loads(text)["artifact_id"]: json.loads(text) for text in announced.values()}
    (trials,) = (key for key, each in names.items() if each["filename"] == "trials.csv")
    found = files.find(trials)
    assert found is not None
    rows = list(csv.DictReader(io.StringIO(found.content())))
    assert [int(each["trial"]) for each in rows] == [r.number for r in results.records]
    assert len([each for each in names.values() if each["filename"] == "trial.json"]) == len(
        {r.number for r in results.front} | {0}
    )
    detail = read_trial(opened, LUCKY)
    assert detail.on_front
    assert detail.configuration is not None
    assert detail.as_dict()["configuration"]["trials"] == list(NUMBERS)
    print_trial(detail)
    shown = capsys.readouterr().out
    assert ["cost", f"{detail.record.cost:.4g}"] in [line.split() for line in shown.splitlines()]
    assert "4 runs (trials 5, 16, 17, 18), medians 0.125 s, 1.1500" in shown
    assert "configuration" not in read_trial(opened, 0).as_dict()
    assert detail.record.values == pytest.approx((0.01 / 400, 0.01)), "a trial is shown as it was"
    database.close()


def test_without_repetition_nothing_speaks_of_it(repeated: Archive, tmp_path: Path) -> None:
    once = dataclasses.replace(
        repeated, records=tuple(r for r in repeated.records if r.number not in NUMBERS[1:])
    )
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    opened = restore(database, once, NAME)
    assert not any("runs" in row for row in status_of(opened)["front"])
    note = standing(opened, read_results(opened))
    assert "luckiest" not in note
    assert " runs" not in note
    database.close()


def test_what_is_expected_and_recommended_has_the_medians(
    repeated: Archive, tmp_path: Path
) -> None:
    file = tmp_path / "study.json.gz"
    times, mqls = (0.1, 0.2, 0.1, 0.4, 0.15), (0.5, 0.5, 0.4, 0.5, 0.5)
    write_archive(with_runs(repeated, tuple(zip(times, mqls, strict=True))), file)
    for pick, values in (("time", "expected"), ("same-quality", None)):
        config = load_best(study=NAME, storage=str(file), pick=pick, values=values)
        assert config.trial == REPEATED
        assert tuple(config.values.values()) == pytest.approx((0.15, 0.5))
        assert config.expected is not None
        assert config.expected["runs"] == LEAST_RUNS
        assert config.provenance["trials"] == [*NUMBERS, max(NUMBERS) + 1]
