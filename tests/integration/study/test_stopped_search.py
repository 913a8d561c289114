"""A search that stopped by itself, on every database: nobody begins a trial of it any more, until
somebody asks for less left to gain."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import optuna
import pytest

from tests.support.in_process_worker import DEVICE, RESULT, result_of
from tests.support.recorded_studies import record_study
from tests.support.spaces import with_range
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.optuna.little_left import LITTLE_LEFT
from tuner.storage.records import LittleLeft
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.transfer import over_space, restore
from tuner.worker.loop import Worker

FOUND = LittleLeft(until=0.1, at_most=0.08, trials=3)


@pytest.fixture
def stopped(study: OpenStudy) -> OpenStudy:
    study.set_policy(SearchPolicy(sampler="random", until=0.1))
    assert study.ledger.stop(FOUND)
    return study


def test_nobody_begins_a_trial_and_what_runs_comes_to_its_end(study: OpenStudy) -> None:
    study.set_policy(SearchPolicy(sampler="random", until=0.1))
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ledger.stop(FOUND)
    with_another = open_database(study.database.address, create=False)  # as another process does
    other = open_study(with_another, study.name)
    assert other.ledger.claim("ben") is None
    counts = other.ledger.counts()
    assert (counts.little_left, counts.ended_early, counts.left) == (FOUND, True, 1)
    assert study.ledger.finish(claim, RESULT)
    assert (other.ledger.counts().finished, other.ledger.counts().left) == (1, 0)
    with_another.close()


def test_workers_go_home_and_more_trials_do_not_bring_them_back(stopped: OpenStudy) -> None:
    stopped.ledger.set_budget(50)
    Worker([stopped], DEVICE, result_of, name="ann").run()
    assert stopped.ledger.counts().finished == 0


@pytest.mark.parametrize("until", [0.05, 0.2, None])
def test_another_share_lets_it_go_on(stopped: OpenStudy, until: float | None) -> None:
    stopped.set_policy(SearchPolicy(sampler="tpe", until=0.1))
    assert stopped.ledger.counts().little_left == FOUND  # the same share
    stopped.set_policy(SearchPolicy(sampler="tpe", until=until))
    assert stopped.ledger.counts().little_left is None
    assert stopped.ledger.claim("ann") is not None


def test_what_was_judged_by_another_share_stops_nothing(study: OpenStudy) -> None:
    for until in (None, 0.05):
        study.set_policy(SearchPolicy(until=until))
        assert not study.ledger.stop(FOUND)
        assert study.ledger.counts().little_left is None


@pytest.mark.parametrize(
    "written", ["yes", {"until": 0.1}, {"until": 0, "at_most": 0, "trials": 0}]
)
def test_what_others_write_there_stops_nothing(study: OpenStudy, written: object) -> None:
    study.set_policy(SearchPolicy(sampler="random", until=0.1))
    theirs = optuna.load_study(study_name=study.name, storage=study.database.optuna)
    theirs.set_user_attr(LITTLE_LEFT, written)
    assert study.ledger.claim("ann") is not None
    assert study.ledger.stop(FOUND)
    assert study.ledger.counts().little_left == FOUND


def test_it_leaves_and_comes_back_as_it_was(
    stopped: OpenStudy, database: Database, tmp_path: Path
) -> None:
    write_archive(archive_of(stopped), tmp_path / "study.json")
    again = restore(database, read_archive(tmp_path / "study.json"), "again")
    assert again.policy() == stopped.policy()
    assert again.ledger.counts().little_left == FOUND
    assert again.ledger.claim("ann") is None


def test_a_search_over_another_space_has_not_stopped(database_url: str) -> None:
    record_study(database_url, variant="rmsnorm", trials=6)
    with closing(open_database(parse_url(database_url), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        study.set_policy(SearchPolicy(until=0.1))
        assert study.ledger.stop(FOUND)
        space = study.definition.space
        lowest, _ = space.learning_rate.bounds()
        wider = with_range(space, "learning_rate", low=lowest / 2)
        file = load_study_file("rmsnorm").model_copy(update={"space": wider})
        archive, left_out = over_space(archive_of(study), file, "wider")
        assert not left_out
        new = restore(database, archive, "wider")
        assert new.policy().until == 0.1
        assert new.ledger.counts().little_left is None
