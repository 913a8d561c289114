"""The ledger's contract: an exact budget, leases on the database's clock, one result a trial, whoever dies when."""

from __future__ import annotations

import dataclasses
import json
import time
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState
from small_study import definition
from sqlalchemy import select, update
from together import at_once

from tuner.storage import Claim, Database, Ledger, TrialResult, open_database, parse_url, schema
from tuner.storage.ledger import MAX_ATTEMPTS
from tuner.study import OpenStudy, create_or_resume, open_study
from tuner.study.suggest import UnfitConfigurationError

ATTRIBUTES: dict[str, Any] = {
    "stopped_by": "converged",
    "converged": True,
    "epochs": 7,
    "val_loss": 0.25,
    "test_mql/a b": 1e-7,
    "failure": None,
    "versions": {"torch": "2", "cuda": None},
    "note": "ä { } % \" '",
}
RESULT = TrialResult(TrialState.COMPLETE, (1.5, 0.25), ATTRIBUTES)


@pytest.fixture(autouse=True)
def _at_first_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases that ran out are taken back at once, but where a test says otherwise."""
    monkeypatch.setattr("tuner.storage.ledger.CONFIRM_SHARE", 0.0)


def start(study: OpenStudy, worker: str = "ann", ledger: Ledger | None = None) -> tuple[Claim, FrozenTrial]:
    """Claim and ask, as a worker does."""
    claim = (ledger or study.ledger).claim(worker)
    assert claim is not None
    trial = study.ask(claim)
    assert trial is not None
    assert trial.number == claim.trial_number
    return claim, trial


def short(study: OpenStudy, lease_s: float = 0.2) -> Ledger:
    """The same study's ledger with leases that run out soon."""
    return Ledger(study.database, study.study_id, lease_s=lease_s)


def expire(study: OpenStudy, claim: Claim) -> None:
    """Let a lease run out now."""
    with study.database.engine.begin() as connection:
        mine = schema.claims.c.claim_id == claim.claim_id
        connection.execute(update(schema.claims).where(mine).values(leased_until=0.0))


def claim_states(study: OpenStudy) -> list[str]:
    with study.database.engine.connect() as connection:
        query = select(schema.claims.c.state).order_by(schema.claims.c.claim_id)
        return list(connection.execute(query).scalars())


def trial_states(study: OpenStudy) -> list[str]:
    return [trial.state.name for trial in study.optuna.get_trials(deepcopy=False)]


# -- one worker's path ----------------------------------------------------------------------------------------


def test_claim_bind_renew_finish(study: OpenStudy) -> None:
    claim, trial = start(study)
    assert (study.ledger.counts().running, study.ledger.counts().finished) == (1, 0)
    assert study.ledger.renew(claim)
    assert study.ledger.finish(claim, RESULT)
    counts = study.ledger.counts()
    assert (counts.budget, counts.running, counts.finished, counts.left) == (10, 0, 1, 9)
    (told,) = study.optuna.trials
    assert (told.number, told.state, tuple(told.values)) == (trial.number, TrialState.COMPLETE, (1.5, 0.25))


def test_the_attributes_are_read_through_optuna_as_they_were_written(study: OpenStudy) -> None:
    claim, _ = start(study)
    study.ledger.finish(claim, RESULT)
    attributes = dict(study.optuna.trials[0].user_attrs)
    assert attributes.pop("default") is True  # what the enqueued trial carried stays
    assert attributes == ATTRIBUTES
    assert attributes == json.loads(json.dumps(ATTRIBUTES))


@pytest.mark.parametrize("state", [TrialState.PRUNED, TrialState.FAIL])
def test_a_trial_without_values_counts_toward_the_budget(study: OpenStudy, state: TrialState) -> None:
    claim, _ = start(study)
    assert study.ledger.finish(claim, TrialResult(state, None, {"stopped_by": "diverged", "failure": "loss nan"}))
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
    """A worker cannot know whether a commit that an outage interrupted was stored: it says it again."""
    claim, _ = start(study)
    assert study.ledger.finish(claim, RESULT)
    assert study.ledger.finish(claim, RESULT)
    assert not study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, (0.0, 0.0), {}))
    assert study.ledger.counts().finished == 1
    assert study.optuna.trials[0].values == [1.5, 0.25]


# -- the budget -----------------------------------------------------------------------------------------------


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


def test_eight_workers_fill_the_budget_exactly(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "busy", definition(), trials=30)
    answers = at_once(claim_until_full, database_url, "busy")
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert study.ledger.counts().finished == 30
    assert trial_states(study) == ["COMPLETE"] * 30
    ran = [run for answer in answers for run in answer]
    assert {number for number, _ in ran} == set(range(30))
    assert len(set(ran)) == 30  # whoever ran a trial again ran the same configuration
    assert len(ran) == claim_states(study).count("finished") + claim_states(study).count("returned")
    assert claim_states(study).count("finished") == 30
    database.close()


def claim_one(url: str, name: str) -> bool:
    database = open_database(parse_url(url), create=False)
    claim = open_study(database, name).ledger.claim("worker")
    database.close()
    return claim is not None


def test_eight_claims_at_once_on_a_budget_of_three_give_three(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    create_or_resume(database, "small", definition(), trials=3)
    database.close()
    answers = at_once(claim_one, database_url, "small")
    assert sorted(answers, key=str) == [False] * 5 + [True] * 3


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


# -- leases ---------------------------------------------------------------------------------------------------


def test_a_lease_that_runs_out_puts_the_trial_back_as_it_was(study: OpenStudy) -> None:
    ledger = short(study)
    start(study)
    assert study.ledger.reap() == 0  # the first lease is a long one
    _, trial = start(study, "bob", ledger)
    time.sleep(0.3)
    assert study.ledger.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    assert trial_states(study) == ["RUNNING", "WAITING"]
    _, again = start(study, "cem")
    assert (again.number, again.params) == (trial.number, trial.params)


def test_a_lease_that_is_renewed_does_not_run_out(study: OpenStudy) -> None:
    ledger = short(study, lease_s=0.5)
    claim, _ = start(study, ledger=ledger)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        assert ledger.renew(claim)
        assert study.ledger.reap() == 0
        time.sleep(0.05)
    assert trial_states(study) == ["RUNNING"]


def test_a_late_result_is_kept_for_the_record_and_never_counted(study: OpenStudy) -> None:
    claim, trial = start(study)
    expire(study, claim)
    assert study.ledger.reap() == 1
    assert not study.ledger.renew(claim)
    assert not study.ledger.finish(claim, RESULT)
    assert study.ledger.counts().finished == 0
    later, again = start(study, "bob")
    assert again.number == trial.number
    assert not study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, (9.0, 9.0), {}))  # the first word stands
    study.ledger.give_back(claim)  # by the one that lost it: nothing happens
    assert trial_states(study) == ["RUNNING"]
    counted = TrialResult(TrialState.COMPLETE, (2.0, 0.5), {})
    assert study.ledger.finish(later, counted)
    assert not study.ledger.finish(claim, RESULT)
    assert study.optuna.trials[0].values == [2.0, 0.5]
    assert study.optuna.trials[0].user_attrs == {"default": True}
    assert study.ledger.counts().finished == 1
    lost, finished = study.ledger.attempts(trial.number)
    assert (lost.worker, lost.state, lost.late, lost.result) == ("ann", "lost", True, RESULT)
    assert (finished.worker, finished.state, finished.late, finished.result) == ("bob", "finished", False, counted)
    assert lost.claimed_at < finished.claimed_at


def test_a_claim_that_is_asked_for_again_is_made_once(study: OpenStudy) -> None:
    """A worker cannot know whether a commit that an outage interrupted was stored: it asks again."""
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


def test_an_enqueued_trial_runs_with_its_values_and_the_samplers_for_the_rest(study: OpenStudy) -> None:
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


def test_leases_that_ran_out_while_the_server_was_down_are_not_taken_back_before_a_grace(study: OpenStudy) -> None:
    """Their workers live, and are about to renew them."""
    patient = Ledger(study.database, study.study_id, restart_grace_s=1e9)
    before, _ = start(study)
    since, _ = start(study, "bob")
    with study.database.engine.begin() as connection:
        old = update(schema.claims).where(schema.claims.c.claim_id == before.claim_id)
        connection.execute(old.values(claimed_at=1.0, leased_until=61.0))
    expire(study, since)
    if study.database.address.is_sqlite:
        assert patient.reap() == 2  # no server that could have been down
        return
    assert patient.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    assert study.ledger.renew(before)
    expire(study, before)
    assert patient.reap(worker="ann") == 1  # known to be dead: nobody will renew


def test_leases_that_ran_out_all_at_once_can_be_renewed_before_they_are_taken_back(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network was away, or the machine asleep: whoever looks first must not take the others for dead."""
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("tuner.storage.ledger.time", clock)
    watching = Ledger(study.database, study.study_id, confirm_s=30.0)
    living, dead = start(study)[0], start(study, "bob")[0]
    expire(study, living)
    expire(study, dead)
    assert watching.reap() == 0
    assert study.ledger.renew(living)
    clock.now += 20.0
    assert watching.reap() == 0
    clock.now += 10.0
    assert watching.reap() == 1
    assert claim_states(study) == ["running", "lost"]
    expire(study, living)
    for _ in range(3):
        clock.now += 31.0  # who looks this rarely cannot know what happened in between
        assert watching.reap() == 0
    clock.now += 30.0
    assert watching.reap() == 1


def test_a_worker_with_another_clock_and_time_zone_takes_nobody_for_dead_but_the_dead(
    study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour fast, and in another zone than the server's; SQLite has no clock but its host's."""
    dead, _ = start(study, "ann")
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("PGTZ", "America/St_Johns")
    hour_fast = time.time() + 3600.0
    monkeypatch.setattr("time.time", lambda: hour_fast)
    time.tzset()
    try:
        far = open_database(study.database.address, create=False)
        abroad = open_study(far, study.name)
        living, _ = start(abroad, "bob")
        assert (study.ledger.reap(), abroad.ledger.reap()) == (0, 0)
        expire(study, dead)
        assert abroad.ledger.reap() == 1
        assert (abroad.ledger.renew(living), abroad.ledger.renew(dead)) == (True, False)
        far.close()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_forged_token_counts_for_nothing(study: OpenStudy) -> None:
    claim, _ = start(study)
    forged = dataclasses.replace(claim, token="0" * 32)
    assert not study.ledger.renew(forged)
    assert not study.ledger.finish(forged, RESULT)
    study.ledger.give_back(forged)
    assert claim_states(study) == ["running"]


def test_a_claim_whose_worker_died_before_asking_does_not_leak(study: OpenStudy) -> None:
    study.ledger.set_budget(1)
    claim = study.ledger.claim("ann")
    assert claim is not None
    assert study.ledger.claim("bob") is None
    expire(study, claim)
    assert study.ledger.reap() == 1
    assert study.ask(claim) is None
    later, trial = start(study, "bob")
    assert (later.trial_id, trial.params) == (claim.trial_id, study.definition.defaults.as_dict())


def test_a_worker_known_to_be_dead_is_not_waited_for(study: OpenStudy) -> None:
    start(study, "ann")
    start(study, "bob")
    assert study.ledger.reap(worker="ann") == 1
    assert claim_states(study) == ["lost", "running"]
    assert trial_states(study) == ["WAITING", "RUNNING"]


def reap(url: str, name: str) -> int:
    database = open_database(parse_url(url), create=False)
    taken = open_study(database, name).ledger.reap()
    database.close()
    return taken


def test_eight_reapers_at_once_take_each_trial_back_once(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "small", definition(), trials=10)
    for _ in range(5):
        claim, _ = start(study)
        expire(study, claim)
    answers = at_once(reap, database_url, "small")
    assert [answer for answer in answers if isinstance(answer, str)] == []
    assert sum(answers) == 5
    assert claim_states(study) == ["lost"] * 5
    assert trial_states(study) == ["WAITING"] * 5
    database.close()


def test_another_studys_claims_are_left_alone(study: OpenStudy) -> None:
    other = create_or_resume(study.database, "other", definition(), trials=1)
    claim, _ = start(other)
    expire(other, claim)
    start(study)
    assert study.ledger.reap() == 0
    assert study.ledger.reap(worker="bob") == 0
    assert trial_states(other) == ["RUNNING"]
    assert other.ledger.reap() == 1


# -- crashes --------------------------------------------------------------------------------------------------


def record_without_telling(study: OpenStudy, claim: Claim) -> None:
    """What is left of a worker that died between writing its result and telling Optuna."""
    assert study.ledger._update_running(claim, state="finished", result=RESULT.to_json())


def test_a_result_that_optuna_was_not_told_is_told_by_whoever_comes_next(study: OpenStudy) -> None:
    claim, _ = start(study)
    record_without_telling(study, claim)
    assert trial_states(study) == ["RUNNING"]
    assert study.ledger.counts().finished == 1
    study.ledger.reap()
    assert trial_states(study) == ["COMPLETE"]
    assert study.optuna.trials[0].values == [1.5, 0.25]
    assert study.optuna.trials[0].user_attrs["epochs"] == 7


def settle(url: str, name: str) -> str:
    database = open_database(parse_url(url), create=False)
    open_study(database, name).ledger.settle()
    database.close()
    return ""


def test_eight_settlers_at_once_tell_each_result_once(database_url: str) -> None:
    database = open_database(parse_url(database_url))
    study = create_or_resume(database, "small", definition(), trials=10)
    for _ in range(4):
        record_without_telling(study, start(study)[0])
    assert at_once(settle, database_url, "small") == [""] * 8
    assert trial_states(study) == ["COMPLETE"] * 4
    for trial in study.optuna.trials:
        assert trial.values == [1.5, 0.25]
        assert trial.user_attrs["test_mql/a b"] == 1e-7
    ended = [trial.datetime_complete for trial in study.optuna.trials]
    study.ledger.settle()
    assert [trial.datetime_complete for trial in study.optuna.trials] == ended
    database.close()


def test_a_crash_in_the_middle_of_telling_is_finished(study: OpenStudy) -> None:
    """Attributes are written first, the state after: between the two there are attributes of an unfinished trial."""
    claim, trial = start(study)
    study.database.optuna.set_trial_user_attr(trial._trial_id, "epochs", -1)
    record_without_telling(study, claim)
    study.ledger.settle()
    assert study.optuna.trials[0].user_attrs["epochs"] == 7
    with study.database.engine.begin() as connection:
        connection.execute(update(schema.claims).values(told=False))
    study.ledger.settle()  # the crash came after the state: the result stands
    assert trial_states(study) == ["COMPLETE"]


def test_a_trial_that_nobody_claims_is_put_back_and_run(study: OpenStudy) -> None:
    """Somebody asked Optuna itself for it, and went."""
    stray = study.optuna.ask(study.definition.space.stored())
    start(study, "bob")
    assert study.ledger.return_strays() == 1
    assert trial_states(study) == ["WAITING", "RUNNING"]
    _, again = start(study, "cem")
    assert (again.number, again.params) == (stray.number, stray.params)
    assert study.ledger.return_strays() == 0


def test_a_trial_that_keeps_losing_its_workers_is_set_aside_with_the_reason(study: OpenStudy) -> None:
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
    assert (study.ledger.counts().finished, study.ledger.counts().set_aside) == (1, 1)
    assert not study.ledger.finish(claim, RESULT)
    assert study.ledger.attempts(0)[MAX_ATTEMPTS - 1].late
    assert start(study)[1].number == 1


class _Stubborn(optuna.samplers.RandomSampler):
    """Suggests the default configuration, twice, before anything else."""

    suggestions = 0

    def sample_relative(self, *_: Any) -> dict[str, Any]:
        self.suggestions += 1
        return definition().defaults.as_dict() if self.suggestions <= 3 else {}


def test_a_configuration_that_was_set_aside_is_not_suggested_again(study: OpenStudy) -> None:
    study.optuna.sampler = _Stubborn()
    for attempt in range(MAX_ATTEMPTS):
        expire(study, start(study, f"worker{attempt}")[0])
        study.ledger.reap()
    poison = study.optuna.trials[0].params
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


def test_a_database_without_studies_settles_nothing(database: Database) -> None:
    Ledger(database, study_id=1).settle()
