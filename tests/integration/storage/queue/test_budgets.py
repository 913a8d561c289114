"""The budget is exact, however many workers claim at once, and however it is changed meanwhile."""

from __future__ import annotations

import time

import optuna
import pytest

from tests.support.claims import RESULT, claim_states, start, trial_states
from tests.support.concurrency import at_once
from tests.support.small_study import definition
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study

pytestmark = pytest.mark.usefixtures("at_first_sight")


def claim_until_full(url: str, name: str) -> list[tuple[int, str]]:
    """What one of several workers does, with its own engine: the trials that it ran."""
    database = open_database(parse_url(url), create=False)
    study = open_study(database, name)
    study.optuna.sampler = optuna.samplers.RandomSampler()
    ran = []
    while study.ledger.counts().left:
        claim = study.ledger.claim("worker")
        if claim is None:
            time.sleep(0.01)
            continue
        trial = study.ask(claim)
        assert trial is not None
        ran.append((trial.number, str(trial.params)))
        if trial.number % 7 == 3 and len(ran) % 2:
            study.ledger.give_back(claim)
        else:
            assert study.ledger.finish(claim, RESULT)
    database.close()
    return ran


def test_workers_at_once_fill_the_budget_exactly(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "busy", definition(), trials=16)
    answers = at_once(claim_until_full, database_url, "busy", processes=5)
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert study.ledger.counts().finished == 16
    assert trial_states(study) == ["COMPLETE"] * 16
    ran = [run for answer in answers for run in answer]
    assert {number for number, _ in ran} == set(range(16))
    assert len(set(ran)) == 16  # whoever ran a trial again ran the same configuration
    assert len(ran) == claim_states(study).count("finished") + claim_states(study).count("returned")
    assert claim_states(study).count("finished") == 16
    database.close()


def test_a_budget_may_be_raised_and_lowered(study: OpenStudy) -> None:
    study.ledger.set_budget(1)
    claim, _ = start(study)
    assert study.ledger.claim("bob") is None
    study.ledger.set_budget(2)
    assert study.ledger.claim("bob") is not None
    study.ledger.set_budget(1)
    assert study.ledger.claim("cem") is None
    study.ledger.finish(claim, RESULT)
    assert study.ledger.counts().left == 0


def test_a_budget_lowered_below_what_runs_lets_that_finish_and_count(study: OpenStudy) -> None:
    running = [start(study, worker)[0] for worker in ("ann", "bob", "cem")]
    study.ledger.set_budget(1)
    assert study.ledger.claim("dan") is None
    for claim in running:
        assert study.ledger.finish(claim, RESULT)
        assert study.ledger.claim("dan") is None
    counts = study.ledger.counts()
    assert (counts.budget, counts.running, counts.finished, counts.left) == (1, 0, 3, 0)
