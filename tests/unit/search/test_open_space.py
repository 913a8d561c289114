"""Every sampler searches spaces with whole numbers, choices and conditions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import optuna
import pytest
from optuna.study import Study
from optuna.trial import TrialState

from tests.support.open_spaces import SPACE
from tuner.config import SAMPLERS, Value
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.search.sampler import EncodedSampler, neighbours
from tuner.search.suggest import UnfitConfigurationError, suggest
from tuner.spec.ranges import held
from tuner.storage.optuna.private import ENQUEUED

DEFAULT: dict[str, Value] = {
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "batch_size": 192,
    "depth": 2,
    "norm": "layer",
    "bias": True,
    "kernel_size": 5,
    "width": 32,
}
TRIALS = {"gp": 24, "nsga2": 70, "kg": 40}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def new_study(sampler: str) -> Study:
    chosen = EncodedSampler(SPACE, sampler, seed=3, default=DEFAULT)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=chosen)
    study.enqueue_trial(SPACE.held(DEFAULT))
    return study


def truth(params: Mapping[str, Value]) -> list[float]:
    """Batch norm with a momentum near 0.1 is best, and deep networks are slow."""
    quality = {"layer": 0.82, "batch": 0.80, "none": 0.9}[str(params["norm"])]
    if "momentum" in params:
        quality += abs(float(params["momentum"]) - 0.1)
    return [float(params["depth"]) * float(params["width"]) / 32, quality]


def run(study: Study, trials: int) -> list[dict[str, Value]]:
    """As a worker does it: only what a configuration has is stored."""
    asked = []
    for number in range(trials):
        trial = study.ask()
        there = study.get_trials(deepcopy=False)[number]
        params = suggest(study, there, there.system_attrs.get(ENQUEUED), SPACE)
        for name in params:
            r = SPACE.ranges[name].stored()
            study._storage.set_trial_param(
                trial._trial_id, name, r.to_internal_repr(held(params[name], r)), r
            )
        flat = Recorded(converged=True, epochs=10).to_flat()
        for key, said in flat.items():
            trial.set_user_attr(key, said)
        study.tell(trial, truth(params))
        asked.append(params)
    return asked


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_suggests_whole_configurations_of_the_space(sampler: str) -> None:
    study = new_study(sampler)
    asked = run(study, TRIALS.get(sampler, 30))
    assert asked[0] == DEFAULT
    for params in asked:
        assert SPACE.contains(params) == []
    assert {params["norm"] for params in asked} == {"layer", "batch", "none"}
    assert {params["bias"] for params in asked} == {True, False}
    assert any("momentum" in params for params in asked)
    assert all(trial.state == TrialState.COMPLETE for trial in study.trials)


def test_the_same_history_gives_the_same_suggestion() -> None:
    first, second = new_study("auto"), new_study("auto")
    assert run(first, 25) == run(second, 25)


def test_what_is_there_tells_configurations_apart() -> None:
    none = {**DEFAULT, "norm": "none"}
    del none["kernel_size"]
    listed = [DEFAULT, none, {**DEFAULT, "bias": False}, {**DEFAULT, "kernel_size": 3}]
    for one, other in itertools.combinations(listed, 2):
        assert configuration(one) != configuration(other)
    assert configuration(dict(reversed(DEFAULT.items()))) == configuration(DEFAULT)


def test_neighbours_change_one_value_and_what_comes_with_it() -> None:
    near = [params for params in neighbours(SPACE, DEFAULT) if params != DEFAULT]
    assert len(near) > 10
    for params in near:
        assert SPACE.contains(params) == []
        changed = {name for name in DEFAULT if params.get(name) != DEFAULT[name]}
        assert len(changed) == 1 or changed == {"norm", "kernel_size"}
    assert {params["norm"] for params in near} == {"layer", "batch", "none"}


@pytest.mark.parametrize(
    "wrong", [{"norm": "group"}, {"norm": 1}, {"bias": 1}, {"depth": 9}, {"depth": "2"}]
)
def test_what_somebody_enqueued_and_the_space_does_not_hold_is_refused(
    wrong: dict[str, Value],
) -> None:
    study = new_study("random")
    study.enqueue_trial(DEFAULT | wrong)
    study.ask()
    study.ask()
    trial = study.get_trials(deepcopy=False)[1]
    assert ENQUEUED in trial.system_attrs
    with pytest.raises(UnfitConfigurationError, match=next(iter(wrong))):
        suggest(study, trial, trial.system_attrs[ENQUEUED], SPACE)


def test_part_of_a_configuration_is_completed() -> None:
    study = new_study("random")
    study.enqueue_trial({"norm": "none", "depth": 5})
    study.ask()
    study.ask()
    trial = study.get_trials(deepcopy=False)[1]
    found = suggest(study, trial, trial.system_attrs[ENQUEUED], SPACE)
    assert (found["norm"], found["depth"]) == ("none", 5)
    assert SPACE.contains(found) == []
