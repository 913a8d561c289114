"""A worker's path through the ledger: claim, parameters, renew, finish or hand back; twice is as
once."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState

from tests.support.claims import ATTRIBUTES, RESULT, expire, start, trial_states
from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import theirs
from tuner.record import Recorded
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
    # Twice is as once: a worker cannot know whether a commit that an outage hid was stored.
    assert not study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, (0.0, 0.0), Recorded()))
    (told,) = study.optuna.trials
    attributes = dict(told.user_attrs)
    assert attributes.pop("default") is True  # what the enqueued trial carried stays
    assert attributes == ATTRIBUTES
    assert (told.number, told.state, tuple(told.values)) == (
        trial.number,
        TrialState.COMPLETE,
        (1.5, 0.25),
    )
    for state in (TrialState.PRUNED, TrialState.FAIL):  # without values it counts as well
        claim, trial = start(study)
        said = Recorded(stopped_by="diverged", failure="loss nan")
        assert study.ledger.finish(claim, TrialResult(state, None, said))
        told = study.optuna.trials[trial.number]
        assert (told.state, told.user_attrs["failure"]) == (state, "loss nan")
    assert study.ledger.counts().finished == 3


def test_a_trial_given_back_waits_with_its_number_and_parameters(study: OpenStudy) -> None:
    start(study)
    claim, trial = start(study, "bob")
    study.ledger.give_back(claim)
    assert trial_states(study) == ["RUNNING", "WAITING"]
    assert (study.ledger.counts().running, study.ledger.counts().finished) == (1, 0)
    later, again = start(study, "cem")
    assert (again.number, again.params) == (trial.number, trial.params)
    study.ledger.give_back(claim)  # twice: it takes nothing from the next worker
    assert study.ledger.renew(later)


@SQLITE_ALONE
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
    assert not study.ledger.write_parameters(frozen, other, study.definition.space.stored(), {})
    assert study.optuna.trials[1].params == trial.params


@SQLITE_ALONE
def test_an_enqueued_trial_runs_with_its_values_and_the_samplers_for_the_rest(
    study: OpenStudy,
) -> None:
    theirs(study).enqueue_trial({"hidden_size": 32, "dropout": 0.25})
    start(study)
    _, trial = start(study, "bob")
    assert trial.number == 1
    assert (trial.params["hidden_size"], trial.params["dropout"]) == (32, 0.25)
    assert trial.params.keys() == study.definition.space.stored().keys()
