"""Another program at our study, through Optuna itself: what is ours stays as we made it, and
nothing else counts."""

from __future__ import annotations

import contextlib
import importlib.util
import random
from pathlib import Path
from types import ModuleType

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from tests.support.claims import start, trial_states
from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import findings, finish_one, result, theirs
from tests.support.paths import BENCHMARKS
from tuner.record import Recorded
from tuner.search.history import TrialHistory
from tuner.search.suggest import UnfitConfigurationError
from tuner.storage.records import TrialResult
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, open_study
from tuner.study.relaunch import Said, open_studies
from tuner.study.results import read_results
from tuner.study.transfer import restore

pytestmark = pytest.mark.usefixtures("at_first_sight")
CHAOS = BENCHMARKS / "chaos" / "foreign.py"


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)


@SQLITE_ALONE
def test_a_trial_without_a_claim_is_nowhere_shown_and_breaks_no_launch(
    study: OpenStudy, tmp_path: Path
) -> None:
    finish_one(study)
    optunas = theirs(study)
    optunas.tell(optunas.ask(), [0.0, 0.0])
    optunas.tell(optunas.ask(), state=TrialState.PRUNED)
    optunas.add_trial(create_trial(values=[float("inf"), 0.1], user_attrs={"converged": True}))
    optunas.ask()
    finish_one(study, 0.4)
    opened = open_study(study.database, study.name)
    for each in (study, opened):
        results = read_results(each)
        assert [record.number for record in results.records] == [0, 5]
        assert [record.number for record in results.front] == [5]
    (again,) = open_studies(
        study.database,
        {study.name: study.definition},
        Said(policy={"max_time_s": 10.0}),
        device_model="m",
    )
    assert again.study.ledger.counts().finished == 2
    assert theirs(study).trials[1].system_attrs == {}  # theirs is not judged by our limits
    file = tmp_path / "study.json"
    write_archive(archive_of(opened), file)
    assert [record.number for record in read_archive(file).results.records] == [0, 5]
    copied = restore(study.database, read_archive(file), "copy")
    assert [record.number for record in read_results(copied).records] == [0, 5]
    assert copied.ledger.counts().finished == 2
    said = findings(study)
    assert "notice: trials that other programs made or ended: " in said
    assert "small trial 1" in said
    assert "error" not in said


def test_what_others_tell_of_our_running_trial_does_not_count(study: OpenStudy) -> None:
    claim, trial = start(study)
    optunas = theirs(study)
    for key in ("seed", "stopped_by", "device", "default"):
        study.database.optuna.set_trial_user_attr(trial._trial_id, key, ["garbage"])
    study.database.optuna.set_trial_system_attr(trial._trial_id, "fixed_params", "garbage")
    optunas.tell(trial.number, [0.0, float("inf")])
    (running,) = read_results(study).records
    assert (running.state, running.values) == (TrialState.RUNNING, None)
    assert study.ledger.finish(claim, result())
    for each in (study, open_study(study.database, study.name)):
        (record,) = read_results(each).records
        assert (record.values, record.params) == ((2.0, 0.5), trial.params)
        assert (record.recorded.seed, record.recorded.device) == (3, "ours")
    stored = theirs(study).trials[0]  # settled over what they told
    assert (stored.state, stored.values, stored.user_attrs["seed"]) == (
        TrialState.COMPLETE,
        [2.0, 0.5],
        3,
    )


def test_a_trial_handed_back_waits_whatever_they_told(study: OpenStudy) -> None:
    claim, trial = start(study)
    theirs(study).tell(trial.number, state=TrialState.FAIL)
    study.ledger.give_back(claim)
    assert trial_states(study) == ["WAITING"]
    _, again = start(study)
    assert (again.number, again.params) == (trial.number, trial.params)


@SQLITE_ALONE
def test_no_enqueued_nonsense_costs_a_worker_its_life(study: OpenStudy) -> None:
    finish_one(study)
    optunas = theirs(study)
    optunas.enqueue_trial({"dropout": "much"})
    optunas.enqueue_trial({"dropout": "0.1"})
    optunas.enqueue_trial({"unheard_of": 1})
    optunas.add_trial(
        create_trial(
            state=TrialState.WAITING,
            params={"dropout": 5.0},
            distributions={"dropout": FloatDistribution(0.0, 10.0)},
        )
    )
    waiting = optunas.trials[-1]._trial_id
    optunas.enqueue_trial({})
    study.database.optuna.set_trial_system_attr(waiting + 1, "fixed_params", [1])
    history = TrialHistory(study.definition.space)
    history.update(study.optuna.get_trials(deepcopy=False), asking=99)
    refused = 0
    for _ in range(5):
        claim = study.ledger.claim("ann")
        assert claim is not None
        try:
            trial = study.ask(claim)
        except UnfitConfigurationError as error:
            said = Recorded(stopped_by="error", failure=str(error), seed=4)  # as a worker says it
            made = TrialResult(TrialState.FAIL, None, said)
            refused += 1
        else:
            assert trial is not None
            assert trial.params.keys() == study.definition.space.stored().keys()
            made = result()
        assert study.ledger.finish(claim, made)
    assert refused == 4
    assert findings(study) == ""
    assert len(read_results(study).records) == 6
    assert all(
        isinstance(value, int | float)
        for r in read_results(study).records
        for value in r.params.values()
    )


@SQLITE_ALONE
def test_the_default_configuration_runs_whoever_took_it(study: OpenStudy) -> None:
    optunas = theirs(study)
    optunas.tell(optunas.ask(), [0.0, 0.0])
    claim, trial = start(study)
    assert (trial.number, trial.user_attrs["default"]) == (0, True)
    assert trial.params == study.definition.defaults.as_dict()
    assert study.ledger.finish(claim, result())
    (stored,) = theirs(study).trials
    assert (stored.state, stored.values) == (TrialState.COMPLETE, [2.0, 0.5])
    assert findings(study) == ""


def chaos() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chaos_foreign", CHAOS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_budget_is_exact_and_the_results_are_ours_beside_another_program(
    study: OpenStudy,
) -> None:
    """The short form of `make chaos`'s part of that name."""
    foreign, draw, expected, params = chaos(), random.Random(2), {}, {}
    optunas = theirs(study)
    study.optuna.sampler = optuna.samplers.RandomSampler(seed=3)
    while study.ledger.counts().left:
        study.ledger.return_strays()
        claim = study.ledger.claim("ann")
        assert claim is not None
        try:
            trial = study.ask(claim)
            assert trial is not None
            made = result(draw.random())
        except UnfitConfigurationError as error:
            said = Recorded(stopped_by="error", failure=str(error), seed=4)
            made = TrialResult(TrialState.FAIL, None, said)
        for action in draw.sample(foreign.ACTIONS, 3):
            with contextlib.suppress(Exception):  # as in the chaos part: some find nothing to do
                action(optunas, draw)
        assert study.ledger.finish(claim, made)
        expected[claim.trial_number] = made
        if made.values and trial is not None:
            params[claim.trial_number] = trial.params
    assert len(expected) == study.ledger.counts().finished == 10
    for each in (study, open_study(study.database, study.name)):
        ended = {r.number: r for r in read_results(each).records if r.state.is_finished()}
        assert {n: r.values for n, r in ended.items()} == {
            n: made.values for n, made in expected.items()
        }
        assert {n: r.params for n, r in ended.items() if r.values} == params
    assert "error" not in findings(study)
