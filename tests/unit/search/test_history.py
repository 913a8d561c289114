"""What a sampler's model is shown of the trials so far: each counts as it should, and is read
once."""

from __future__ import annotations

import math
import statistics
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.support.sampled_studies import FILE, SPACE, new_study, record
from tuner.record import Recorded
from tuner.search.history import TrialHistory, clipped, most_telling, with_log_time
from tuner.search.pruning import Verdict


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_a_diverged_trial_counts_as_no_better_than_the_worst() -> None:
    study = new_study("tpe")
    record(study, 5)
    trial = study.ask(SPACE.stored())
    trial.set_user_attr("stopped_by", "diverged")
    study.tell(trial, state=TrialState.FAIL)
    history = TrialHistory(SPACE)
    history.update(study.trials, asking=99)
    shown = history._with_values()
    assert history.learnt == 6
    assert shown[5].values == [
        max(t.values[0] for t in shown[:5]),
        max(t.values[1] for t in shown[:5]),
    ]


def test_a_pruned_trial_counts_as_no_better_than_its_optimistic_end_and_the_middling_mql() -> None:
    study = new_study("tpe")
    record(study, 5)
    mqls = sorted(trial.values[1] for trial in study.trials)
    verdict = Verdict(epoch=7, optimistic_end=(3.0, 0.9), dominated_by=1, dominating=(2.0, 0.8))
    trial = study.ask(SPACE.stored())
    for key, value in verdict.said_in(Recorded(stopped_by="pruned")).to_flat().items():
        trial.set_user_attr(key, value)
    study.tell(trial, state=TrialState.PRUNED)
    history = TrialHistory(SPACE)
    history.update(study.trials, asking=99)
    assert mqls[2] < 0.9
    assert history._with_values()[5].values == [3.0, 0.9]
    late = [0.95, 0.96, 0.97, 0.98, 0.99]
    for mql in late:
        study.tell(study.ask(SPACE.stored()), [1.0, mql])
    history.update(study.trials, asking=99)
    middling = statistics.median([*mqls, *late])
    assert middling > 0.9
    assert history._with_values()[5].values == [3.0, pytest.approx(middling)]


def test_a_history_translates_each_finished_trial_once(monkeypatch: pytest.MonkeyPatch) -> None:
    study = new_study("tpe")
    record(study, 8)
    history = TrialHistory(SPACE)
    translations = []
    original = TrialHistory._translated

    def counted(*args: Any) -> Any:
        translations.append(1)
        return original(*args)

    monkeypatch.setattr(TrialHistory, "_translated", counted)
    for _ in range(3):
        history.update(study.trials, asking=99)
    assert len(translations) == 8


def test_outliers_are_clipped_and_long_histories_cut_to_what_tells_most() -> None:
    study = new_study("tpe")
    record(study, 40)
    trials = study.trials
    trials[7].values = [1e9, 1e9]
    assert max(trial.values[0] for trial in clipped(trials)) < 100
    assert max(trial.values[0] for trial in with_log_time(trials)) == pytest.approx(math.log(1e9))
    assert trials[7].values == [1e9, 1e9]
    kept = most_telling(trials, 20)
    assert len(kept) == 20
    best = {trial.number for trial in study.best_trials}
    assert best <= {trial.number for trial in kept}
    assert [trial.number for trial in kept] == sorted(trial.number for trial in kept)


def test_trials_without_weight_decay_do_not_pile_up_on_one_encoded_point() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"])
    here = FILE.default_hyperparameters().as_dict()
    for number in range(8):
        study.add_trial(
            create_trial(
                params=SPACE.held(here), distributions=SPACE.stored(), values=[1.0, number]
            )
        )
    history = TrialHistory(SPACE)
    history.update(study.trials, asking=99)
    shown = [trial.params["weight_decay"] for trial in history._with_values()]
    assert len(set(shown)) == 8
    assert {SPACE.weight_decay.decode(value) for value in shown} == {0.0}
    assert len({trial.params["learning_rate"] for trial in history._with_values()}) == 1
