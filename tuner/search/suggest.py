"""What a claimed trial is run with: what it already has,
what somebody enqueued, else what the sampler suggests.
"""

from __future__ import annotations

from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.record import is_set_aside
from tuner.spec.ranges import AnyRange
from tuner.spec.space import SearchSpace
from tuner.storage.optuna.own_trials import is_number
from tuner.storage.optuna.private import holds
from tuner.storage.optuna.rows import ENQUEUED


class UnfitConfigurationError(ValueError):
    """A trial was enqueued with a value that its space does not hold."""


TRIES = 10
"""Suggestions of a configuration that was set aside
which are refused before one is accepted after all."""


def suggest(study: Study, trial: FrozenTrial, space: SearchSpace) -> dict[str, Any]:
    """A value for each hyperparameter of `space` that the configuration has, as `Study.ask` would
    choose them; writes no parameter.

    A configuration that was set aside, because it cost several workers their lives, is not
    suggested again (unless the sampler insists, as it must where the space holds nothing else).

    Raises:
        UnfitConfigurationError: the trial was enqueued with a value outside its range.
    """
    enqueued = trial.system_attrs.get(ENQUEUED, {})
    if not isinstance(enqueued, dict):
        raise UnfitConfigurationError(f"enqueued with {enqueued!r}, which is no configuration")
    for name, r in space.ranges.items():
        for given in (trial.params, enqueued):  # both may be another program's
            if name in given:
                _check(name, given[name], r)
    if space.whole(trial.params):
        return space.only_there(trial.params)
    poison = [other.params for other in _set_aside(study)]
    for _ in range(TRIES):
        chosen = _ask_sampler(study, trial, space)
        if chosen not in poison:
            break
    return chosen


def _ask_sampler(study: Study, trial: FrozenTrial, space: SearchSpace) -> dict[str, Any]:
    sampler = study.sampler
    sampler.before_trial(study, trial)
    relative = sampler.sample_relative(
        study, trial, sampler.infer_relative_search_space(study, trial)
    )
    known = relative | trial.system_attrs.get(ENQUEUED, {}) | trial.params
    if space.whole(known):
        return space.only_there(known)
    for name, distribution in space.stored().items():
        if name not in known:  # enqueued with a part of a configuration
            known[name] = sampler.sample_independent(study, trial, name, distribution)
    return space.only_there(known)


def _check(name: str, value: Any, r: AnyRange) -> None:
    # As Optuna checks it, but for a number in quotes, which Optuna takes, and choices by kind.
    distribution = r.stored()
    if r.named:
        fits = isinstance(value, str | int | float) and r.outside(value) is None
    else:
        fits = is_number(value) and holds(distribution, value)
    if not fits:
        raise UnfitConfigurationError(
            f"enqueued with {name} = {value!r}, which is not in {distribution}"
        )


def _set_aside(study: Study) -> list[FrozenTrial]:
    failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return [trial for trial in failed if is_set_aside(trial.user_attrs)]
