"""A worker's path through the ledger: claim, parameters, renew, finish or hand back; twice is as
once."""

from __future__ import annotations

import dataclasses
import json

import pytest
from optuna.trial import TrialState

from tests.support.claims import ATTRIBUTES, RESULT, claim_states, expire, start, trial_states
from tuner.record import Recorded
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy

pytestmark = pytest.mark.usefixtures("at_first_sight")


def test_claim_bind_renew_finish(study: OpenStudy) -> None:
    claim, trial = start(study)
    assert (study.ledger.counts().running, study.ledger.counts().finished) == (1, 0)
    assert study.ledger.renew(claim)
    assert study.ledger.finish(claim, RESULT)
    counts = study.ledger.counts()
    assert (counts.budget, counts.running, counts.finished, counts.left) == (10, 0, 1, 9)
    assert (study.ledger.results("ann"), study.ledger.results("bob")) == (1, 0)
    (told,) = study.optuna.trials
    assert (told.number, told.state, tuple(told.values)) == (
        trial.number,
        TrialState.COMPLETE,
        (1.5, 0.25),
    )


def test_the_attributes_are_read_through_optuna_as_they_were_written(study: OpenStudy) -> None:
    claim, _ = start(study)
    study.ledger.finish(claim, RESULT)
    attributes = dict(study.optuna.trials[0].user_attrs)
    assert attributes.pop("default") is True  # what the enqueued trial carried stays
    assert attributes == ATTRIBUTES
    assert attributes == json.loads(json.dumps(ATTRIBUTES))


@pytest.mark.parametrize("state", [TrialState.PRUNED, TrialState.FAIL])
def test_a_trial_without_values_counts_toward_the_budget(
    study: OpenStudy, state: TrialState
) -> None:
    claim, _ = start(study)
    assert study.ledger.finish(
        claim, TrialResult(state, None, Recorded(stopped_by="diverged", failure="loss nan"))
    )
    assert study.ledger.counts().finished == 1
    assert study.optuna.trials[0].state == state
    assert study.optuna.trials[0].user_attrs["failure"] == "loss nan"


def test_a_trial_given_back_waits_with_its_number_and_parameters(study: OpenStudy) -> None:
    start(study)
    claim, trial = start(study, "bob")
    study.ledger.give_back(claim)
    assert trial_states(study) == ["RUNNING", "WAITING"]
    assert (study.ledger.counts().running, study.ledger.counts().finished) == (1, 0)
    _, again = start(study, "cem")
    assert (again.number, again.params) == (trial.number, trial.params)


def test_giving_back_twice_takes_nothing_from_the_next_worker(study: OpenStudy) -> None:
    claim, _ = start(study)
    study.ledger.give_back(claim)
    later, _ = start(study, "bob")
    study.ledger.give_back(claim)
    assert trial_states(study) == ["RUNNING"]
    assert study.ledger.renew(later)


def test_finishing_twice_counts_once(study: OpenStudy) -> None:
    """A worker cannot know whether a commit that an outage interrupted was stored: it says it
    again."""
    claim, _ = start(study)
    assert study.ledger.finish(claim, RESULT)
    assert study.ledger.finish(claim, RESULT)
    assert not study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, (0.0, 0.0), Recorded()))
    assert study.ledger.counts().finished == 1
    assert study.optuna.trials[0].values == [1.5, 0.25]


def test_a_claim_that_is_asked_for_again_is_made_once(study: OpenStudy) -> None:
    """A worker cannot know whether a commit that an outage interrupted was stored: it asks
    again."""
    first = study.ledger.claim("ann", token="a" * 32)
    assert study.ledger.claim("ann", token="a" * 32) == first
    assert study.ledger.counts().running == 1


def test_asking_again_gives_the_same_parameters(study: OpenStudy) -> None:
    start(study)
    claim, trial = start(study, "bob")
    again = study.ask(claim)
    assert again is not None
    assert (again.number, again.params) == (trial.number, trial.params)
    assert study.optuna.trials[1].params == trial.params
    assert study.optuna.trials[1].distributions == study.definition.space.stored()


def test_a_fenced_worker_cannot_change_what_another_runs(study: OpenStudy) -> None:
    """It was frozen between claiming and writing its parameters."""
    start(study)
    frozen = study.ledger.claim("ann")
    assert frozen is not None
    expire(study, frozen)
    study.ledger.reap()
    later, trial = start(study, "bob")
    assert later.trial_id == frozen.trial_id
    other = trial.params | {"dropout": 0.0}
    assert not study.ledger.write_parameters(frozen, other, study.definition.space.stored())
    assert study.optuna.trials[1].params == trial.params


def test_an_enqueued_trial_runs_with_its_values_and_the_samplers_for_the_rest(
    study: OpenStudy,
) -> None:
    study.optuna.enqueue_trial({"hidden_size": 32, "dropout": 0.25})
    start(study)
    _, trial = start(study, "bob")
    assert trial.number == 1
    assert (trial.params["hidden_size"], trial.params["dropout"]) == (32, 0.25)
    assert trial.params.keys() == study.definition.space.stored().keys()


def test_an_enqueued_value_outside_its_range_is_refused_by_name(study: OpenStudy) -> None:
    study.optuna.enqueue_trial({"dropout": 1.5})
    start(study)
    claim = study.ledger.claim("bob")
    assert claim is not None
    with pytest.raises(UnfitConfigurationError, match=r"dropout = 1\.5"):
        study.ask(claim)


def test_a_forged_token_counts_for_nothing(study: OpenStudy) -> None:
    claim, _ = start(study)
    forged = dataclasses.replace(claim, token="0" * 32)
    assert not study.ledger.renew(forged)
    assert not study.ledger.finish(forged, RESULT)
    study.ledger.give_back(forged)
    assert claim_states(study) == ["running"]
