"""Trials that nobody holds are put back; what keeps costing workers their lives is set aside."""

from __future__ import annotations

from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from tests.support.claims import RESULT, claim_states, expire, start, trial_states
from tests.support.databases import SQLITE_ALONE
from tests.support.small_study import definition
from tuner.storage.queue.leased_queue import MAX_ATTEMPTS
from tuner.study.open import OpenStudy

pytestmark = pytest.mark.usefixtures("at_first_sight")


@SQLITE_ALONE
def test_a_trial_that_nobody_claims_is_put_back_and_run(study: OpenStudy) -> None:
    """Somebody asked Optuna itself for it, and went."""
    study.optuna.ask(study.definition.space.stored())
    assert study.ledger.return_strays() == 1
    assert trial_states(study) == ["WAITING"]
    study.optuna.ask(study.definition.space.stored())
    _, again = start(study, "cem")
    assert (again.number, again.params) == (0, study.definition.defaults.as_dict())
    assert trial_states(study) == ["RUNNING"]
    assert study.ledger.return_strays() == 0


def test_a_trial_that_keeps_losing_its_workers_is_set_aside_with_the_reason(
    study: OpenStudy,
) -> None:
    for attempt in range(MAX_ATTEMPTS):
        claim, trial = start(study, f"worker{attempt}")
        assert trial.number == 0
        expire(study, claim)
        study.ledger.reap()
    assert trial_states(study) == ["FAIL"]
    assert claim_states(study) == ["lost"] * MAX_ATTEMPTS + ["finished"]
    attributes = study.optuna.trials[0].user_attrs
    assert attributes["stopped_by"] == "error"
    assert attributes["failure"] == f"set aside: its worker was lost {MAX_ATTEMPTS} times"
    assert study.ledger.counts().finished == 1
    assert {study.ledger.results(f"worker{attempt}") for attempt in range(MAX_ATTEMPTS)} == {0}
    assert not study.ledger.finish(claim, RESULT)
    assert study.ledger.attempts(0)[MAX_ATTEMPTS - 1].late
    assert start(study)[1].number == 1


class _Stubborn(optuna.samplers.RandomSampler):
    """Suggests the default configuration, twice, before anything else."""

    suggestions = 0

    def sample_relative(self, *_: Any) -> dict[str, Any]:
        self.suggestions += 1
        return definition().defaults.as_dict() if self.suggestions <= 3 else {}


@SQLITE_ALONE
def test_a_configuration_that_was_set_aside_is_not_suggested_again(study: OpenStudy) -> None:
    study.optuna.sampler = _Stubborn()
    for attempt in range(MAX_ATTEMPTS):
        expire(study, start(study, f"worker{attempt}")[0])
        study.ledger.reap()
    poison = study.definition.space.true(study.optuna.trials[0].params)
    assert study.optuna.trials[0].state == TrialState.FAIL
    assert start(study)[1].params != poison


def test_a_trial_that_is_handed_back_is_never_set_aside(study: OpenStudy) -> None:
    for number in range(2 * MAX_ATTEMPTS):
        claim, trial = start(study)
        assert trial.number == 0
        if number % 2:
            study.ledger.give_back(claim)
        else:  # killed by an impatient second Ctrl-C
            assert study.ledger.reap(worker="ann", state="returned") == 1
    assert trial_states(study) == ["WAITING"]
    assert set(claim_states(study)) == {"returned"}
