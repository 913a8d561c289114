"""How far each stage of a retune is, how long the rest takes, and whose the runs are."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.planned_confirmations import SEEDS, known, opened, unregistered
from tests.support.present import present
from tuner.launch import retune
from tuner.launch.retune import RetuneRequest
from tuner.launch.retune_request import Stage, of_runs, of_search
from tuner.spec.policy import Registered
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, register_retune
from tuner.study.snapshot import grouped, open_group
from tuner.verdict.confirmation_plan import plan_confirmation

ASKED = RetuneRequest(variant="rmsnorm", against="original", task="demo")


@pytest.fixture
def studies(unverified: Database) -> list[OpenStudy]:
    """Two searches of each variant, 24 trials each, of which nothing is registered."""
    return unregistered(unverified)


def test_a_stage_says_how_long_the_rest_takes(studies: list[OpenStudy]) -> None:
    for each in studies[:2]:
        each.ledger.set_budget(30)
    try:
        found = of_search(studies[:2], devices=2, timed=False)
        assert (found.done, found.planned) == (48, 60)
        each_s = found.device_s / 48
        assert found.left_s == pytest.approx(12 * each_s / 2)
    finally:
        for each in studies[:2]:
            each.ledger.set_budget(24)
    plan_confirmation(studies[:2], seeds=SEEDS)
    runs = [run for each in studies[:2] for run in each.verifications.runs()]
    own = [each.name for each in studies[:2]]
    nothing = of_runs(Stage.CONFIRMATION, studies[:2], devices=2, budget_s=None, own=own)
    assert (nothing.done, nothing.left_s) == (0, None)
    verify_all(studies[:2], known())
    done = of_runs(Stage.CONFIRMATION, studies[:2], devices=2, budget_s=None, own=own)
    assert done.done == done.planned == len(runs)
    assert done.left_s == 0


def test_runs_of_the_reference_are_of_the_retune_that_asked_for_them(
    studies: list[OpenStudy], unverified: Database
) -> None:
    variant = studies[2:]
    registered = Registered(against="original", searches=2, trials=24, together=1, finished=True)
    register_retune(variant[0], registered)
    plan_confirmation(variant, reference=open_group(unverified, "demo-original"), seeds=SEEDS)
    counts = [len(each.verifications.runs()) for each in studies]
    assert counts[0] == SEEDS  # what is offered is held against the reference's default
    verify_all(studies, known(mql=0.78))
    own = [each.name for each in variant]
    whole = of_runs(Stage.CONFIRMATION, studies, devices=1, budget_s=None, own=own)
    outcome = retune.run(dataclasses.replace(ASKED, storage=unverified.address.full()))
    told = outcome.stages[list(Stage).index(Stage.CONFIRMATION)]
    assert told.over
    assert told.done == whole.done == whole.planned == sum(counts)
    assert told.device_s == pytest.approx(whole.device_s)
    reference, paid = outcome.costs
    assert reference.spent.confirmation_runs == 0
    assert paid.spent.confirmation_runs == sum(counts)
    assert paid.spent.confirmation_s == pytest.approx(whole.device_s)


def test_what_is_under_way_takes_its_time_where_a_budget_is_spent(
    studies: list[OpenStudy],
) -> None:
    study = studies[0]
    policy = study.policy()
    study.ledger.set_budget(30)
    claim = study.ledger.claim("a worker")
    study.set_policy(policy.but(search_s=study.ledger.spent_s() / 2))
    try:
        found = of_search([study], devices=2, timed=True)
        assert found.left_s == pytest.approx(found.device_s / 24 / 2), "on one of the devices"
        study.ledger.give_back(present(claim))
        assert of_search([study], devices=2, timed=True).left_s == 0
    finally:
        study.set_policy(policy)
        study.ledger.set_budget(24)


def test_runs_of_a_reference_that_was_confirmed_before_are_not_counted(
    unverified: Database,
) -> None:
    originals = opened(unverified, "demo-original", "demo-original-2")
    variants = opened(unverified, "demo-rmsnorm", "demo-rmsnorm-2")
    before = plan_confirmation(originals, seeds=SEEDS, margin=0.01).new_runs
    verify_all(originals, known())
    (reference,) = grouped(originals)
    new = plan_confirmation(variants, reference=reference, seeds=SEEDS, margin=0.01).new_runs
    assert before > 0
    assert new > 0

    def standing(*own: str) -> tuple[int, int | None]:
        found = of_runs(
            Stage.CONFIRMATION, [*originals, *variants], devices=2, budget_s=None, own=own
        )
        return found.done, found.planned

    # The reference's default runs again beside the variant: that is of the variant's confirmation.
    assert standing("demo-rmsnorm", "demo-rmsnorm-2") == (0, new)
    assert standing("demo-original", "demo-original-2") == (before, before)
    assert standing(*(each.name for each in (*originals, *variants))) == (before, before + new)
