"""A second launch: what it does not say stays, what it says changes, and a line tells both."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from optuna.trial import TrialState

from tests.support.databases import SQLITE_ALONE
from tests.support.small_study import definition
from tuner.config import Backend, Precision
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database
from tuner.storage.records import TrialResult
from tuner.study.open import DEFAULT_TRIALS, open_study
from tuner.study.relaunch import Launched, Said, open_studies
from tuner.study.results import read_results


def launch(database: Database, asked: StudyDefinition | None = None, **said: Any) -> Launched:
    (launched,) = open_studies(
        database, {"small": asked or definition()}, Said(**said), device_model="A"
    )
    return launched


FIRST: dict[str, Any] = {
    "sampler": "tpe",
    "seed": 7,
    "prune": False,
    "max_time_s": 10.0,
    "max_mql": 0.8,
    "max_memory_bytes": 8 * 10**9,
    "reruns": 3,
    "checkpoint_s": 0.0,
    "margin": 0.02,
    "search_s": 90.0,
}


@SQLITE_ALONE
def test_what_is_not_said_stays(database: Database) -> None:
    assert launch(database, policy=FIRST).notes == ()  # a new study changes from nothing
    again = launch(database)
    assert again.study.policy() == SearchPolicy(**FIRST)
    assert again.changed == {}
    (line,) = again.notes
    assert line == (
        "small keeps --sampler tpe --sampler-seed 7 --no-prune --max-time 10 --max-mql 0.8 "
        "--max-memory 8GB "
        "--reruns 3 --checkpoint-every none --margin 2% --search-time 90s"
    )


@SQLITE_ALONE
def test_what_is_said_changes_it_alone_and_a_line_tells_from_what_to_what(
    database: Database,
) -> None:
    for field, first in FIRST.items():
        launch(database, policy=FIRST)
        default = getattr(SearchPolicy(), field)
        again = launch(database, policy={field: default})
        assert again.study.policy() == SearchPolicy(**{**FIRST, field: default})
        assert again.changed == {field: {"from": first, "to": default}}
        before, after = SearchPolicy(**FIRST).in_flags()[field], SearchPolicy().in_flags()[field]
        assert f"small changes from {before} to {after}" in again.notes
        assert before not in again.notes[1]


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("field", "value", "flag"),
    [
        ("seed", 4294967295, "--sampler-seed 4294967295"),
        ("max_mql", 0.80000001, "--max-mql 0.80000001"),
        ("max_memory_bytes", 8 * 2**30, "--max-memory 8.589934592GB"),
        ("checkpoint_s", 1234567.5, "--checkpoint-every 1234567.5s"),
        ("margin", 0.012345678, "--margin 1.2345678%"),
    ],
)
def test_what_a_line_tells_can_be_said_again(
    field: str, value: float, flag: str, database: Database
) -> None:
    launch(database, policy={field: value})
    assert launch(database).notes == (f"small keeps {flag}",)


@SQLITE_ALONE
def test_what_is_said_again_is_no_change(database: Database) -> None:
    launch(database, policy={"prune": False})
    again = launch(database, policy={"prune": False})
    assert (again.changed, again.notes) == ({}, ())


@SQLITE_ALONE
def test_the_budget_stays_too(database: Database) -> None:
    assert launch(database).study.ledger.counts().budget == DEFAULT_TRIALS
    assert launch(database, trials=200).study.ledger.counts().budget == 200
    assert launch(database).study.ledger.counts().budget == 200


def made(**changes: Any) -> StudyDefinition:
    fresh = definition(**changes)
    return dataclasses.replace(fresh, training=fresh.training.but(backend=Backend.EAGER))


@SQLITE_ALONE
def test_what_a_study_is_made_with_stays(database: Database) -> None:
    first = made(
        seeds_per_trial=3,
        max_epochs=9,
        time_objective="time_to_target_s",
        target_val_loss=0.2,
        mql_split="val",
    )
    launch(database, first)
    again = launch(database)
    assert again.study.definition.identity() == first.identity()
    (line,) = again.notes
    assert line == (
        "small keeps --max-epochs 9 --backend eager --seeds 3 --time-objective time_to_target_s "
        "--target-val-loss 0.2 "
        "--mql-split val"
    )


@SQLITE_ALONE
def test_settings_of_training_that_are_not_said_stay_as_well(database: Database) -> None:
    training = definition().training.but(
        accumulate=4,
        checkpoint_activations=True,
        validate_every=5,
        precision=Precision.FP16,
    )
    first = dataclasses.replace(definition(), training=training)
    launch(database, first)
    again = launch(database)
    assert again.study.definition.training == training
    keeps = "--precision fp16 --set accumulate=4 --set checkpoint_activations=true"
    assert again.notes == (f"small keeps {keeps} --set validate_every=5",)
    with pytest.raises(UsageError, match=r"training\.accumulate: 4 there, absent asked"):
        launch(database, definition=("accumulate",))


@SQLITE_ALONE
@pytest.mark.parametrize(
    ("setting", "changes", "difference"),
    [
        ("max_epochs", {"max_epochs": 2}, "training.max_epochs: 3 there, 2 asked"),
        (
            "time_objective",
            {"time_objective": "total_s"},
            "objectives: ['wall_clock_s', 'test_mql'] there",
        ),
    ],
)
def test_what_a_study_is_made_with_can_only_be_said_as_it_is(
    setting: str, changes: dict[str, Any], difference: str, database: Database
) -> None:
    launch(database)
    with pytest.raises(UsageError) as refused:
        launch(database, definition(**changes), definition=(setting,), trials=99)
    assert difference in str(refused.value)
    study = open_study(database, "small")
    assert study.ledger.counts().budget == DEFAULT_TRIALS


@SQLITE_ALONE
def test_other_data_is_refused_whatever_was_said(database: Database) -> None:
    launch(database)
    with pytest.raises(UsageError, match="data_hash"):
        launch(database, definition(data_hash="1" * 64))


@SQLITE_ALONE
def test_a_sampler_that_changes_what_is_pruned_says_so(database: Database) -> None:
    launch(database, policy={"sampler": "tpe"})
    (line,) = launch(database, policy={"sampler": "kg"}).notes
    assert line == "small changes from --sampler tpe to --sampler kg, from pruning to no pruning"
    (line,) = launch(database, policy={"sampler": "tpe", "prune": False}).notes
    assert line == (
        "small changes from --sampler kg to --sampler tpe, from pruning as the sampler has it to "
        "--no-prune"
    )


CUT = Recorded(stopped_by="epoch_limit", converged=False, epochs=3, total_s=6.0)
CONVERGED = Recorded(stopped_by="converged", converged=True, epochs=2, total_s=4.0)


def test_a_higher_limit_of_epochs_lets_wait_again_what_the_old_one_cut_off(
    database: Database,
) -> None:
    study = launch(database, trials=2).study
    claims = []
    for recorded in (CUT, CONVERGED):
        claim = study.ledger.claim("w")
        assert claim is not None
        study.ask(claim)
        result = TrialResult(TrialState.COMPLETE, (6.0, 0.8), recorded, {"max_mql": 0.1})
        assert study.ledger.finish(claim, result)
        claims.append(claim)
    assert [each.state for each in read_results(study).records] == [TrialState.COMPLETE] * 2
    spent, watched = study.ledger.spent_s(), study.optuna
    launched = launch(database, definition(max_epochs=5), definition=("max_epochs",))
    assert "small runs again up to 5 epochs what 3 cut off" in launched.notes
    higher = launched.study
    assert higher.definition.training.max_epochs == 5
    assert higher.study_id == study.study_id
    waits, stays = read_results(higher).records
    assert (waits.state, waits.is_default, waits.values) == (TrialState.WAITING, True, None)
    assert waits.recorded.stopped_by is None
    assert (stays.state, stays.values) == (TrialState.COMPLETE, (6.0, 0.8))
    assert [each.state for each in watched.get_trials()] == [waits.state, stays.state]
    assert claims[0].trial_id is not None
    theirs = database.optuna.get_trial(claims[0].trial_id)
    assert (theirs.state, theirs.values) == (TrialState.WAITING, None)
    assert set(theirs.user_attrs) == {"default"}
    assert not any(key.startswith("constraint") for key in theirs.system_attrs)
    assert higher.ledger.spent_s() == spent  # what it had stays counted
    first = study.ledger.attempts(0)
    assert [(each.state, each.result is not None) for each in first] == [("returned", True)]
    again = higher.ledger.claim("w")
    assert again is not None
    assert again.trial_number == 0
    with pytest.raises(UsageError, match="has a limit of 5, and workers are at it"):
        launch(database, definition(max_epochs=9), definition=("max_epochs",))
