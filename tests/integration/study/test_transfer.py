"""Studies made of other studies: whole, extended, or begun with what others found."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tests.support.recorded_studies import record_study
from tests.support.spaces import with_range
from tuner.errors import TunerError, UsageError
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.queue.claims import stints
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, create_or_resume, list_studies, open_study
from tuner.study.relaunch import change_policy, fronts_of, warm_start_with
from tuner.study.results import read_results
from tuner.study.transfer import over_space, restore


@pytest.fixture(scope="module")
def recorded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with a study of eight finished trials."""
    path = tmp_path_factory.mktemp("recorded") / "recorded.db"
    record_study(f"sqlite:///{path}", variant="rmsnorm", trials=8)
    return path


@pytest.fixture
def finished(recorded_file: Path, tmp_path: Path) -> OpenStudy:
    """That study, in a database of the test's own."""
    path = shutil.copy(recorded_file, tmp_path / "own.db")
    return open_study(open_database(parse_url(f"sqlite:///{path}"), create=False), "demo-rmsnorm")


@pytest.fixture
def anywhere(finished: OpenStudy, database: Database) -> OpenStudy:
    """That study, moved by its archive to each kind of database."""
    return restore(database, archive_of(finished), "demo-rmsnorm")


def other_study(database: Database, like: StudyDefinition, **changes: object) -> OpenStudy:
    import dataclasses

    return create_or_resume(database, "other", dataclasses.replace(like, **changes), trials=20)  # type: ignore[arg-type]


@SQLITE_ALONE
def test_an_import_holds_everything_and_goes_its_own_way(anywhere: OpenStudy) -> None:
    copy = restore(anywhere.database, archive_of(anywhere), "twin")
    assert read_results(copy).records == read_results(anywhere).records
    assert (copy.ledger.counts().finished, copy.ledger.counts().budget) == (8, 8)
    assert copy.epochs.of_trial(3) == pytest.approx(anywhere.epochs.of_trial(3))
    assert copy.device_model() == anywhere.device_model()
    copy.ledger.set_budget(9)
    claim = copy.ledger.claim("ann")
    assert claim is not None
    assert claim.trial_number == 8
    assert copy.ask(claim) is not None
    assert copy.ledger.finish(
        claim, TrialResult(TrialState.COMPLETE, (1.0, 2.0), Recorded(converged=True))
    )
    assert len(read_results(copy).complete) == len(read_results(anywhere).complete) + 1


def test_an_exported_study_is_imported_once_under_a_name(
    finished: OpenStudy, tmp_path: Path
) -> None:
    write_archive(archive_of(finished), tmp_path / "s.json.gz")
    archive = read_archive(tmp_path / "s.json.gz")
    with pytest.raises(UsageError, match="there is a study 'demo-rmsnorm' already"):
        restore(finished.database, archive, "demo-rmsnorm")
    again = restore(finished.database, archive, "imported")
    assert read_results(again).front == read_results(finished).front
    assert [attempt.state for attempt in again.ledger.attempts(2)] == ["finished"]
    (attempt,) = stints(again.database.engine, again.study_id, trial_number=2)
    assert attempt.worker == read_results(again).records[2].place == "cores 0, 1"


def test_an_import_that_was_cut_short_is_unknown_and_made_again(
    finished: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    archive = archive_of(finished)
    with monkeypatch.context() as patch:
        patch.setattr("tuner.study.transfer._write_ours", stop)
        with pytest.raises(KeyboardInterrupt):
            restore(finished.database, archive, "half")
    assert list_studies(finished.database) == ["demo-rmsnorm"]
    assert len(read_results(restore(finished.database, archive, "half")).records) == 8


def test_an_import_has_its_limits_and_its_device_as_soon_as_it_is_there(
    finished: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    shared = ("elsewhere", finished.name)
    said = {"max_mql": 0.9, "prune": False, "max_gpu_s": 1e9, "gpu_shared": shared}
    change_policy(finished, said)
    with monkeypatch.context() as patch:
        patch.setattr("tuner.study.transfer.open_study", stop)
        with pytest.raises(KeyboardInterrupt):
            restore(finished.database, archive_of(finished), "whole")
    whole = open_study(finished.database, "whole")
    assert whole.policy() == finished.policy().but(gpu_shared=())
    change_policy(finished, {"max_gpu_s": None, "gpu_shared": ()})
    assert finished.device_model() is not None
    assert whole.device_model() == finished.device_model()


def test_what_shared_a_limit_shares_it_where_both_are_imported(
    finished: OpenStudy, tmp_path: Path
) -> None:
    """Under their own names: two studies do not come to two limits by being moved."""
    shared = ("elsewhere", finished.name)
    archive = archive_of(finished)
    limited = archive.policy.but(max_gpu_s=1e9, gpu_shared=shared)
    url = parse_url(f"sqlite:///{tmp_path}/other.db")
    with closing(open_database(url)) as database:
        moved = restore(database, replace(archive, policy=limited), finished.name)
        assert moved.policy() == limited
        other = restore(database, replace(archive, policy=limited), "elsewhere")
        assert other.policy().gpu_shared == (), "a copy is another study"


def test_another_space_makes_a_new_study_with_the_old_trials_that_lie_in_it(
    finished: OpenStudy,
) -> None:
    space = finished.definition.space
    smaller = with_range(space, "hidden_size", low=64)
    file = load_study_file("rmsnorm")
    archive, left_out = over_space(
        archive_of(finished), file.model_copy(update={"space": smaller}), "narrow"
    )
    new = restore(finished.database, archive, "narrow")
    taken = 8 - left_out["hidden_size"]
    old = [r for r in read_results(finished).records if not smaller.contains(r.params)]
    records = read_results(new).records
    assert 0 < taken == len(old) == len(records) < 8
    assert [r.values for r in records] == [r.values for r in old]
    assert [r.number for r in records] == list(range(taken))
    assert records[1].recorded.copied_from == f"demo-rmsnorm, trial {old[1].number}"
    assert records[0].is_default
    assert new.ledger.counts().finished == taken
    assert new.definition.identity() != finished.definition.identity()
    with pytest.raises(UsageError, match="has the space of rmsnorm already"):
        over_space(archive_of(finished), file.model_copy(update={"space": space}), "same")
    with pytest.raises(UsageError, match="of the network"):
        over_space(archive_of(finished), load_study_file("simple"), "other")


def test_a_default_that_no_old_trial_had_is_tried_first(finished: OpenStudy) -> None:
    space = finished.definition.space
    wider = with_range(space, "hidden_size", high=512)
    file = load_study_file("rmsnorm")
    defaults = file.defaults.model_copy(update={"hidden_size": 512})
    over = file.model_copy(update={"space": wider, "defaults": defaults})
    archive, left_out = over_space(archive_of(finished), over, "wide")
    assert not left_out
    new = restore(finished.database, archive, "wide")
    new.ledger.set_budget(12)
    claim = new.ledger.claim("ann")
    assert claim is not None
    trial = new.ask(claim)
    assert trial is not None
    assert trial.params == over.default_hyperparameters().as_dict()


def test_fronts_of_others_are_tried_after_the_default_and_only_once(
    finished: OpenStudy, tmp_path: Path
) -> None:
    write_archive(archive_of(finished), tmp_path / "s.json.gz")
    fronts = fronts_of(finished.database, f"demo-rmsnorm, {tmp_path}/s.json.gz")
    space = finished.definition.space
    new = other_study(
        finished.database,
        finished.definition,
        space=with_range(space, "learning_rate", high=5e-4),
    )
    said = warm_start_with(new, fronts)
    waiting = [space.true(trial.params) for trial in new.optuna.trials]
    assert waiting[0] == new.definition.defaults.as_dict()
    assert 1 < len(waiting) <= 1 + len(fronts[0].results.front)
    assert len({configuration(params) for params in waiting}) == len(waiting)
    assert all(new.definition.space.contains(params) == [] for params in waiting)
    assert (
        f"tries {len(waiting) - 1} of the {2 * len(fronts[0].results.front)} front configurations"
        in said
    )
    assert "moved into its space" in said
    warm_start_with(new, fronts)
    assert len(new.optuna.trials) == len(waiting)


def test_a_warm_start_from_nothing_says_what_is_missing(finished: OpenStudy) -> None:
    other_study(finished.database, finished.definition, variant="else")
    with pytest.raises(TunerError, match="'other' has no finished trial to begin with"):
        fronts_of(finished.database, "other")
    with pytest.raises(UsageError, match="unknown study 'demo-rmsnrm'"):
        fronts_of(finished.database, "demo-rmsnrm")
    with pytest.raises(UsageError, match="empty name"):
        fronts_of(finished.database, "demo-rmsnorm,")


@SQLITE_ALONE
def test_limits_hold_for_all_trials_from_the_moment_they_are_set(anywhere: OpenStudy) -> None:
    complete = read_results(anywhere).complete
    middle = sorted(record.values[0] for record in complete if record.values)[len(complete) // 2]
    change_policy(anywhere, {"max_time_s": middle})
    results = read_results(anywhere)
    assert {record.values[0] <= middle for record in results.front if record.values} == {True}
    assert results.limits == f"wall_clock_s <= {middle:g}"
    assert not results.infeasible
    fresh = optuna.load_study(
        study_name="demo-rmsnorm", storage=str(anywhere.database.address.full())
    )
    for trial in fresh.get_trials(
        states=(TrialState.COMPLETE,)
    ):  # as any other reader of Optuna's tables sees it
        assert (trial.constraints["max_time"] <= 0) == (trial.values[0] <= middle)
    change_policy(anywhere, {"max_mql": 1e-6})
    assert read_results(anywhere).infeasible
    change_policy(anywhere, {"max_time_s": None, "max_mql": None})
    assert not read_results(anywhere).infeasible
    again = optuna.load_study(
        study_name="demo-rmsnorm", storage=str(anywhere.database.address.full())
    )
    assert all(trial.constraints == {} for trial in again.trials)
