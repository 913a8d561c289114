"""A study whose space has hyperparameters of the network's own, on each database: everything that
reads configurations."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
import math
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tests.support.open_spaces import STUDY, write_stack
from tuner.config import Hyperparameters, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.errors import UsageError
from tuner.export import load_best, render
from tuner.export.train import read_recipe
from tuner.record import Recorded
from tuner.report.dashboard.downloads import _trials_csv
from tuner.report.study_status import read_trial, status_of
from tuner.report.terminal.tables import print_summary
from tuner.report.terminal.trial_sections import print_trial
from tuner.search.sampler import EncodedSampler
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, check_resumable, create_or_resume
from tuner.study.relaunch import fronts_of, warm_start_with
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.study.transfer import over_space, restore
from tuner.verdict.explain import explain_study

TRIALS = 24
FIXTURES = Path(__file__).parents[2] / "fixtures"


def made_up(trial_number: int, params: dict[str, object]) -> TrialResult:
    h = Hyperparameters.of(params)  # type: ignore[arg-type]
    depth, norm = float(h.own["depth"]), h.own["norm"]
    mql = 0.5 + {"layer": 0.0, "batch": 0.02, "none": 0.1}[str(norm)] + 0.01 * abs(depth - 3)
    seconds = depth * (1 + abs(math.log10(h.learning_rate) + 3))
    said = Recorded(
        stopped_by="converged", converged=True, epochs=9, seed=trial_number, val_mql=mql
    )
    return TrialResult(TrialState.COMPLETE, (seconds, mql), said)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with closing(open_database(parse_url(database_url))) as opened:
        yield opened


@pytest.fixture
def study(database: Database, tmp_path: Path) -> OpenStudy:
    """All searched, by the sampler that `auto` means."""
    file = load_study_file(str(write_stack(tmp_path)))
    task = load_task("demo")
    definition = StudyDefinition.of(
        file,
        task=task.definition(),
        data_hash=prepare(task).data_hash,
        training=TrainingSettings(max_epochs=50),
    )
    opened = create_or_resume(database, "demo-stack", definition, trials=TRIALS)
    opened.bind_device_model("Example CPU, 2 cores")
    opened.optuna.sampler = EncodedSampler(
        definition.space, "auto", seed=1, default=definition.defaults.as_dict()
    )
    for _ in range(TRIALS):
        claim = opened.ledger.claim("ann")
        assert claim is not None
        trial = opened.ask(claim)
        assert trial is not None
        result = made_up(trial.number, trial.params)
        result = dataclasses.replace(
            result,
            recorded=dataclasses.replace(result.recorded, default=trial.user_attrs.get("default")),
        )
        assert opened.ledger.finish(claim, result)
    return opened


@SQLITE_ALONE
def test_what_was_searched_is_read_shown_exported_and_explained(
    study: OpenStudy, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = read_results(study)
    space = study.definition.space
    assert len(results.complete) == TRIALS
    assert results.complete[0].is_default
    for record in results.complete:
        assert space.contains(record.params) == []
    assert {record.params["norm"] for record in results.complete} == {"layer", "batch", "none"}
    assert study.optuna.best_trials, "Optuna's own reader finds them, too"
    conditional = next(r for r in results.complete if r.params["norm"] == "none")
    stored = study.database.optuna.get_all_trials(study.study_id)[conditional.number]
    assert stored.params == dict(conditional.params)
    assert "kernel_size" not in stored.params

    print_summary([study], ["tuner", "launch"], ended="done")
    said = capsys.readouterr()
    assert "kernel_size" in said.out + said.err
    print_trial(read_trial(study, conditional.number))
    assert "norm" in capsys.readouterr().out
    front = status_of(study)["front"]
    assert all("depth" in each["params"] for each in front)
    rows = list(csv.DictReader(io.StringIO(_trials_csv(results))))
    assert rows[conditional.number]["norm"] == "none"
    assert rows[conditional.number]["kernel_size"] == ""

    shares = explain_study(snapshot(study)).importances
    assert set(shares["test_mql"]) >= {"depth", "norm", "kernel_size", "width"}
    assert "batch_size" not in shares["test_mql"], "it is fixed"
    assert max(shares["test_mql"], key=lambda name: shares["test_mql"][name]) == "norm"

    best = load_best(study="demo-stack", pick="mql", values="single", storage=database_url)
    assert best.params == dict(results.front[-1].params)
    assert best.params["norm"] != "none"
    layers = [type(each).__name__ for each in best.build_model().body]  # type: ignore[union-attr]
    assert layers.count("Conv1d") == 1 + int(best.params["depth"])
    file = tmp_path / "best.toml"
    file.write_text(render(best, "toml"), encoding="utf-8")
    assert tomllib.loads(file.read_text())["params"]["depth"] == best.params["depth"]
    recipe = read_recipe(file)
    assert recipe.hyperparameters == best.hyperparameters
    assert json.loads(render(best, "json"))["params"] == best.params


def test_the_study_travels_and_a_changed_file_of_it_is_refused(
    study: OpenStudy, tmp_path: Path
) -> None:
    path = tmp_path / "study.json.gz"
    write_archive(archive_of(study), path)
    archive = read_archive(path)
    assert archive.definition.identity() == study.definition.identity()
    again = restore(study.database, archive, "twin")
    assert read_results(again).records == read_results(study).records

    from tuner.study.archive import as_dict, from_dict

    plain = as_dict(archive)
    for wrong, words in (
        ({"norm": "group"}, "norm = group is outside"),
        ({"depth": 77}, "depth = 77 is outside"),
        ({"gain": 1}, "'gain' is no hyperparameter of the study"),
        ({"norm": True}, "norm = True is outside"),
    ):
        changed = json.loads(json.dumps(plain))
        changed["trials"][3]["params"] |= wrong
        with pytest.raises(ValueError, match=words):
            from_dict(changed)
    lacking = json.loads(json.dumps(plain))
    del lacking["trials"][3]["params"]["depth"]
    with pytest.raises(ValueError, match="lacks the hyperparameter depth"):
        from_dict(lacking)


def test_a_study_of_before_spaces_were_open_is_the_same_study() -> None:
    path = FIXTURES / "archives" / "oldest.json.gz"
    stored = json.loads(gzip.decompress(path.read_bytes()))
    archive = read_archive(path)
    assert archive.definition.space.definition() == stored["definition"]["space"]
    assert [r.params for r in archive.records] == [t["params"] for t in stored["trials"]]
    assert archive.definition.as_dict() == stored["definition"]


@SQLITE_ALONE
def test_another_space_takes_over_what_lies_in_it_and_fronts_are_moved_into_it(
    study: OpenStudy, tmp_path: Path
) -> None:
    narrow = STUDY.replace('"layer", "batch", "none"', '"layer", "batch"').replace(
        'when = { norm = "none" }', 'when = { norm = "batch" }'
    )
    narrow = narrow.replace("high = 4\nreason", "high = 3\nreason")
    file = load_study_file(str(write_stack(tmp_path, narrow)))
    archive, left_out = over_space(archive_of(study), file, "narrow")
    new, taken = restore(study.database, archive, "narrow"), TRIALS - left_out.total()
    old = [r for r in read_results(study).records if not file.space.contains(r.params)]
    assert taken == len(old) < TRIALS
    assert [r.params for r in read_results(new).complete] == [r.params for r in old]
    assert new.definition.identity() != study.definition.identity()
    with pytest.raises(UsageError, match=r"space\.norm\.choices"):
        check_resumable(
            study.database, "demo-stack", new.definition, trials=None, device_model=None
        )

    definition = dataclasses.replace(new.definition, variant="other")
    other = create_or_resume(study.database, "other", definition, trials=4)
    said = warm_start_with(other, fronts_of(study.database, "demo-stack"))
    assert "tries" in said
    for trial in other.optuna.trials[1:]:
        assert file.space.contains(file.space.true(trial.params)) == []
