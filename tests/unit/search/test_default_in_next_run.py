"""A sampler that expects noise measures all others by the default: its runs count together, and it
begins where the default has converged."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.support.noisy_surface import DEFAULT, SPACE, begun, sampler
from tuner.search.history import TrialHistory
from tuner.search.next_run import known
from tuner.search.past_runs import place_of


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("state", [TrialState.FAIL, TrialState.RUNNING])
def test_without_a_run_of_the_default_it_asks_as_tpe_does(state: TrialState) -> None:
    found = []
    for name in ("kg", "tpe"):
        study = begun(24, default=state)  # which is after its beginning
        study.sampler = sampler(name)
        found.append([study.ask(SPACE.stored()).params for _ in range(2)])
    assert found[0] == found[1]
    study = begun(24)
    again = SPACE.true(study.ask(SPACE.stored()).params)
    assert again == DEFAULT, "it needs more runs of it to judge others"


def test_a_default_that_did_not_converge_says_nothing() -> None:
    study = begun(16)
    first = study.trials[0]
    without = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    without.add_trial(
        create_trial(
            params=first.params,
            distributions=SPACE.stored(),
            values=first.values,
            user_attrs={"converged": False, "stopped_by": "epoch_limit"},
        )
    )
    without.add_trials(study.trials[1:])
    assert SPACE.true(without.ask(SPACE.stored()).params) != DEFAULT


def test_the_default_counts_with_the_mean_of_its_runs() -> None:
    history = TrialHistory(SPACE)
    study = begun(3)
    for seconds, mql in ((2.0, 0.7), (4.0, 0.9)):
        study.add_trial(
            create_trial(
                params=SPACE.held(DEFAULT), distributions=SPACE.stored(), values=[seconds, mql]
            )
        )
    history.update(study.trials, asking=9)
    first = study.trials[0].values
    assert history.values_of(DEFAULT) == pytest.approx(((first[0] + 6.0) / 3, (first[1] + 1.6) / 3))
    assert history.values_of(SPACE.at([0.3] * 5)) is None


def test_a_default_that_fails_sometimes_does_not_make_others_look_as_good() -> None:
    study = begun(24)
    for _ in range(5):
        study.add_trial(
            create_trial(
                state=TrialState.FAIL,
                params=SPACE.held(DEFAULT),
                distributions=SPACE.stored(),
                user_attrs={"stopped_by": "diverged"},
            )
        )
    history = TrialHistory(SPACE)
    history.update(study.trials, asking=99)
    found = known(history, place_of(SPACE, DEFAULT))
    assert found is not None
    assert len(found.past) == 24


def test_a_beginning_leaves_out_what_was_set_aside() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler())
    for number in range(3):
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if number == 0 else TrialState.COMPLETE,
                params=SPACE.held(DEFAULT if number == 0 else SPACE.at([0.1 * number] * 5)),
                distributions=SPACE.stored(),
                values=None if number == 0 else [1.0, 0.8],
                user_attrs={"set_aside": True} if number == 0 else {},
            )
        )
    asked = [SPACE.true(study.ask(SPACE.stored()).params) for _ in range(6)]
    assert DEFAULT not in asked, "it cost several workers their lives"
