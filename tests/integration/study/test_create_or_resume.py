"""A study is created once, resumed by the same definition, and refused to anything else."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import func, select

from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.small_study import TASK, definition
from tuner.errors import UsageError
from tuner.report.study_status import status_of
from tuner.storage import schema
from tuner.storage.database import Database, initialisation_lock, open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, check_resumable, create_or_resume, list_studies, open_study
from tuner.study.results import read_results


def create(url: str) -> int:
    database = open_database(parse_url(url))
    with initialisation_lock(database.address):
        study = create_or_resume(database, "small", definition(), trials=10)
    database.close()
    return study.study_id


@SQLITE_ALONE
def test_a_new_study_waits_with_the_default_hyperparameters(study: OpenStudy) -> None:
    (record,) = read_results(study).records
    assert record.state == TrialState.WAITING
    assert record.is_default
    space = study.definition.space
    trial = study.optuna.ask(space.stored())
    assert trial.number == 0
    assert space.true(trial.params) == definition().defaults.as_dict()
    assert space.true(trial.params)["weight_decay"] == 0.0
    assert study.optuna.metric_names == ["wall_clock_s", "test_mql"]


@SQLITE_ALONE
def test_the_definition_comes_back_whole(study: OpenStudy) -> None:
    again = open_study(study.database, "small")
    assert again.definition.as_dict() == definition().as_dict()
    assert again.definition.identity() == definition().identity()
    assert again.ledger.counts().budget == 10


def test_processes_that_create_the_same_study_at_once_make_one(database_url: str) -> None:
    answers = at_once(create, database_url, processes=4)
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert len(set(answers)) == 1
    database = open_database(parse_url(database_url), create=False)
    assert list_studies(database) == ["small"]
    assert [
        record.is_default for record in read_results(open_study(database, "small")).records
    ] == [True]
    database.close()


@SQLITE_ALONE
def test_resuming_sets_the_budget_and_adds_nothing(study: OpenStudy) -> None:
    again = create_or_resume(study.database, "small", definition(), trials=12)
    assert again.study_id == study.study_id
    assert again.ledger.counts().budget == 12
    assert len(again.optuna.trials) == 1


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"max_epochs": 2}, "training.max_epochs: 3 there, 2 asked"),
        ({"data_hash": "1" * 64}, "data_hash"),
        ({"task": TASK | {"horizon": 12}}, "task.horizon: 6 there, 12 asked"),
    ],
)
def test_a_stale_definition_is_refused_with_what_differs(
    study: OpenStudy, changed: dict[str, Any], difference: str
) -> None:
    with pytest.raises(UsageError) as refused:
        create_or_resume(study.database, "small", definition(**changed), trials=99)
    assert difference in str(refused.value)
    assert "--study" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert study.ledger.counts().budget == 10


@SQLITE_ALONE
def test_prose_may_change(study: OpenStudy) -> None:
    create_or_resume(
        study.database, "small", definition(task=TASK | {"description": "said better"}), trials=10
    )


Direction: TypeAlias = Literal["minimize", "maximize"]


def make_foreign(
    database: Database, *, directions: list[Direction], trial: bool, attribute: bool
) -> optuna.Study:
    foreign = optuna.create_study(
        study_name="small", storage=database.optuna, directions=directions
    )
    if trial:
        foreign.add_trial(optuna.trial.create_trial(values=[1.0] * len(directions)))
    if attribute:
        foreign.set_user_attr("owner", "somebody else")
    return foreign


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("directions", "trial", "attribute"),
    [
        (["minimize", "minimize"], True, False),
        (["minimize", "minimize"], False, True),
        (["minimize", "minimize"], False, False),
        (["maximize", "minimize"], False, False),
    ],
)
def test_a_foreign_study_of_that_name_is_refused_and_left_alone(
    database: Database, directions: list[Direction], trial: bool, attribute: bool
) -> None:
    foreign = make_foreign(database, directions=directions, trial=trial, attribute=attribute)
    with pytest.raises(UsageError, match=r"not made by tuner.*--study"):
        check_resumable(database, "small", definition(), trials=3, device_model="x")
    with pytest.raises(UsageError, match=r"not made by tuner.*--study"):
        create_or_resume(database, "small", definition(), trials=3)
    again = optuna.load_study(study_name="small", storage=database.optuna)
    assert len(again.trials) == int(trial)
    assert len(again.directions) == len(directions)
    assert again.user_attrs == foreign.user_attrs
    assert list_studies(database) == []


@SQLITE_ALONE
def test_a_study_deleted_by_other_means_leaves_nothing_to_the_next(study: OpenStudy) -> None:
    """SQLite hands out a deleted study's number again."""
    claim = study.ledger.claim("ann")
    assert claim is not None
    optuna.delete_study(study_name="small", storage=study.database.optuna)
    assert list_studies(study.database) == []
    again = create_or_resume(study.database, "small", definition(), trials=3)
    assert (again.ledger.counts().running, again.ledger.counts().finished) == (0, 0)
    assert again.epochs.of_trial(0) == ()
    assert len(again.optuna.trials) == 1


@SQLITE_ALONE
def test_an_unknown_study_is_refused_with_the_names(study: OpenStudy) -> None:
    with pytest.raises(UsageError, match=r"unknown study 'smal'.*small"):
        open_study(study.database, "smal")


@SQLITE_ALONE
def test_a_study_is_bound_to_the_first_device_model_it_sees(study: OpenStudy) -> None:
    assert study.device_model() is None
    check_resumable(study.database, "small", definition(), trials=10, device_model="B")
    study.bind_device_model("A")
    study.bind_device_model("A")
    assert study.device_model() == "A"
    with pytest.raises(UsageError, match=r"measured on 'A', this device is 'B'.*--study"):
        study.bind_device_model("B")
    assert study.device_model() == "A"


def bind(url: str) -> str:
    import os

    database = open_database(parse_url(url), create=False)
    model = f"model {os.getpid()}"
    try:
        open_study(database, "small").bind_device_model(model)
    except UsageError:
        return "refused"
    finally:
        database.close()
    return "bound"


def test_of_eight_device_models_at_once_one_is_bound(database_url: str) -> None:
    create(database_url)
    assert sorted(at_once(bind, database_url)) == ["bound"] + ["refused"] * 7


@SQLITE_ALONE
def test_a_full_study_may_be_asked_for_from_any_device(study: OpenStudy) -> None:
    study.bind_device_model("A")
    with pytest.raises(UsageError, match="do not compare"):
        check_resumable(study.database, "small", definition(), trials=1, device_model="B")
    claim = study.ledger.claim("ann")
    assert claim is not None
    with study.database.engine.begin() as connection:
        connection.execute(schema.work.update().values(state="finished", told=True))
    check_resumable(study.database, "small", definition(), trials=1, device_model="B")


@SQLITE_ALONE
def test_checking_writes_nothing(database: Database) -> None:
    check_resumable(database, "small", definition(), trials=3, device_model="A")
    with database.engine.connect() as connection:
        assert (
            connection.execute(select(func.count()).select_from(schema.studies)).scalar_one() == 0
        )
    assert database.optuna.get_all_studies() == []


@SQLITE_ALONE
def test_the_status_of_a_new_study_is_plain_data(study: OpenStudy) -> None:
    import json

    status = json.loads(json.dumps(status_of(study), allow_nan=False))
    assert status["trials"] == {"complete": 0, "running": 0, "waiting": 1, "pruned": 0, "failed": 0}
    assert (status["budget"], status["front"], status["hypervolume"], status["workers"]) == (
        10,
        [],
        None,
        [],
    )
