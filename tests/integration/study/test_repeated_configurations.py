"""A study in which one configuration ran four times, once with luck: what is made of its runs, and
what runs next."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.drawn_verifications import missed, verify_all
from tests.support.repeated_configurations import (
    LUCKY,
    MEDIANS,
    NAME,
    NUMBERS,
    REPEATED,
    VALUES,
    on_front,
)
from tests.support.spaces import with_range
from tuner.config import Choice
from tuner.export import load_best
from tuner.report.study_status import read_trial
from tuner.search.history import configuration
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import Archive, archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy
from tuner.study.relaunch import fronts_of, warm_start_with
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.study.transfer import over_space, restore
from tuner.verdict.compare.findings import compare
from tuner.verdict.explain import explain_study
from tuner.verdict.known_runs import candidates_of, default_of, runs_of
from tuner.verdict.picks import picks_expected
from tuner.verdict.recommendation import model_of
from tuner.verdict.verification_plan import plan_verification
from tuner.verdict.verified import verified_in


@pytest.fixture(scope="module")
def stored(repeated: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with the study; a test that writes copies it."""
    path = tmp_path_factory.mktemp("stored") / "tuner.db"
    database = open_database(parse_url(f"sqlite:///{path}"))
    restore(database, repeated, NAME)
    database.close()
    return path


@pytest.fixture
def study(stored: Path, tmp_path: Path) -> Iterator[OpenStudy]:
    from tuner.study.open import open_study

    path = shutil.copy(stored, tmp_path / "own.db")
    database = open_database(parse_url(f"sqlite:///{path}"), create=False)
    yield open_study(database, NAME)
    database.close()


def test_the_front_has_the_medians_and_not_the_lucky_run(repeated: Archive) -> None:
    results = repeated.results
    whole = results.configuration_of(LUCKY)
    assert whole is not None
    assert (whole.number, whole.numbers) == (REPEATED, NUMBERS)
    assert whole.values == pytest.approx(MEDIANS)
    assert LUCKY not in results.on_front
    assert min(mql for _, mql in results.points) > VALUES[2][1]


def test_the_model_counts_runs_and_whoever_missed_is_no_candidate(repeated: Archive) -> None:
    study = snapshot(repeated)
    runs = [run for run in runs_of(study) if run.trial == REPEATED]
    assert sorted((run.seconds, run.mql) for run in runs) == sorted(VALUES)
    model = model_of(study)
    assert model is not None
    assert model.estimate(REPEATED, model.mql).runs == 4
    assert set(model.trials) == {r.number for r in study.results.configurations if r.converged}
    assert REPEATED in candidates_of(study)
    assert not candidates_of(study) & set(NUMBERS[1:])
    for how in ("epoch_limit", "diverged"):
        last = repeated.records[-1]
        recorded = dataclasses.replace(last.recorded, converged=False, stopped_by=how)
        changed = dataclasses.replace(
            repeated, records=(*repeated.records[:-1], dataclasses.replace(last, recorded=recorded))
        )
        assert candidates_of(study) - candidates_of(snapshot(changed)) == {REPEATED}


def test_the_default_that_ran_again_stays_the_default(repeated: Archive) -> None:
    default = repeated.records[0]
    assert default.is_default
    again = dataclasses.replace(
        repeated.records[-1],
        params=default.params,
        recorded=dataclasses.replace(default.recorded, default=None),
    )
    cut = dataclasses.replace(
        default, recorded=dataclasses.replace(default.recorded, converged=False)
    )
    middle = repeated.records[1:-1]
    assert default_of(snapshot(repeated)) == 0
    both = snapshot(dataclasses.replace(repeated, records=(default, *middle, again)))
    assert default_of(both) == 0
    assert len([run for run in runs_of(both) if run.trial == 0]) == 2
    found = snapshot(dataclasses.replace(repeated, records=(cut, *middle, again)))
    model = model_of(found)
    assert model is not None
    assert default_of(found) == again.number == model.default
    assert again.number not in candidates_of(found), "it missed once"


@pytest.mark.parametrize("choice", list(Choice))
def test_a_verification_plans_a_configuration_once(study: OpenStudy, choice: Choice) -> None:
    planned = plan_verification([study], top=20, seeds=2, choice=choice)
    assert planned.new_runs > 0
    runs = study.verifications.runs()
    keys = {(configuration(run.params), run.seed) for run in runs}
    assert len(keys) == len(runs)
    assert not {run.trial_number for run in runs} & set(NUMBERS[1:])
    taken = {run.seed for run in runs}
    used = {record.recorded.seed for record in read_results(study).records}
    assert not taken & used


def test_runs_that_missed_on_fresh_seeds_count_for_all_its_trials(study: OpenStudy) -> None:
    plan_verification([study], top=20, seeds=1, choice=Choice.FRONT)
    planned = {run.trial_number for run in study.verifications.runs()}
    before = candidates_of(snapshot(study))
    verify_all([study], missed)
    now = snapshot(study)
    assert before - candidates_of(now) == planned & before
    assert set(verified_in(now)) == planned


def test_figures_on_fresh_seeds_are_found_from_each_of_its_trials(
    repeated: Archive, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    database = open_database(parse_url(url))
    opened = restore(database, on_front(repeated), NAME)
    plan_verification([opened], top=20, seeds=6, choice=Choice.FRONT)
    verify_all([opened])
    assert REPEATED in verified_in(snapshot(opened))
    fresh = read_trial(opened, REPEATED).verified
    assert fresh is not None
    assert read_trial(opened, LUCKY).verified == fresh
    for number in NUMBERS:
        assert load_best(study=NAME, trial=number, storage=url).verified == fresh
    database.close()


def test_a_choice_of_a_verification_before_stays_that_of_its_configuration(
    study: OpenStudy,
) -> None:
    plan_verification([study], top=20, seeds=1, choice=Choice.EXPECTED)
    first, *_ = (run for run in study.verifications.runs())
    noted = dataclasses.replace(
        first, plan={"choice": Choice.EXPECTED, "picks": {NAME: {"knee": LUCKY}}}
    )
    seen = dataclasses.replace(snapshot(study), read_runs=lambda: (noted,))
    assert picks_expected(seen) == {"knee": LUCKY}


def test_a_warm_start_takes_each_configuration_once(repeated: Archive, tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    opened = restore(database, on_front(repeated), NAME)
    fronts = fronts_of(database, NAME)
    assert [r.number for r in fronts[0].results.front] == [
        r.number for r in read_results(opened).front
    ]
    assert REPEATED in {r.number for r in fronts[0].results.front}
    empty = dataclasses.replace(repeated, records=(), budget=50, curves={}, notes={})
    new = restore(database, empty, "new")
    said = warm_start_with(new, fronts)
    waiting = [configuration(trial.params) for trial in new.optuna.trials]
    assert len(set(waiting)) == len(waiting) == len(fronts[0].results.front)
    assert f"tries {len(waiting)} of the {len(waiting)} front configurations" in said
    assert "trial 5" in str([trial.user_attrs for trial in new.optuna.trials])
    database.close()


def test_exports_and_imports_keep_every_run(study: OpenStudy, tmp_path: Path) -> None:
    before = read_results(study)
    copied = read_results(restore(study.database, archive_of(study), "copy"))
    assert [r.values for r in copied.records] == [r.values for r in before.records]
    assert [r.numbers for r in copied.configurations] == [r.numbers for r in before.configurations]
    assert [(r.number, r.values) for r in copied.front] == [
        (r.number, r.values) for r in before.front
    ]
    file = tmp_path / "study.json.gz"
    write_archive(archive_of(study), file)
    read = read_archive(file).results
    assert read == before
    assert read.configurations == before.configurations
    wider = with_range(study.definition.space, "hidden_size", high=512)
    over = load_study_file(study.definition.variant).model_copy(update={"space": wider})
    archive, left_out = over_space(archive_of(study), over, "wider")
    assert not left_out
    extended = read_results(restore(study.database, archive, "wider"))
    whole = extended.configuration_of(REPEATED)
    assert whole is not None
    assert whole.runs == 4
    assert whole.values == pytest.approx(MEDIANS)


def test_comparisons_and_explanations_speak_of_configurations(repeated: Archive) -> None:
    lucky = snapshot(on_front(repeated))
    (row,) = (row for row in compare([lucky], pick="time").rows if row.hyperparameters != "default")
    assert (row.trial, row.search_runs) == (REPEATED, 4)
    assert row.figures["test_mql"] == pytest.approx(MEDIANS[1])
    assert row.as_dict()["search_runs"] == 4
    ranking = explain_study(snapshot(repeated)).ranking
    assert ranking is not None
    assert ranking.by_test not in NUMBERS
