"""What a claimed trial is run with: what it already has, what somebody enqueued, else what the sampler suggests."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


class UnfitConfigurationError(ValueError):
    """A trial was enqueued with a value that its space does not hold."""


TRIES = 10
"""Suggestions of a configuration that was set aside which are refused before one is accepted after all."""


def suggest(study: Study, trial: FrozenTrial, distributions: dict[str, BaseDistribution]) -> dict[str, Any]:
    """A value for each of `distributions`, as `Study.ask` would choose them; writes no parameter.

    A configuration that was set aside, because it cost several workers their lives, is not suggested again (unless
    the sampler insists, as it must where the space holds nothing else).

    Raises:
        UnfitConfigurationError: the trial was enqueued with a value outside its range.
    """
    if distributions.keys() <= trial.params.keys():
        return {name: trial.params[name] for name in distributions}
    poison = [other.params for other in _set_aside(study)]
    for _ in range(TRIES):
        chosen = _ask_sampler(study, trial, distributions)
        if chosen not in poison:
            break
    return chosen


def _ask_sampler(study: Study, trial: FrozenTrial, distributions: dict[str, BaseDistribution]) -> dict[str, Any]:
    sampler = study.sampler
    sampler.before_trial(study, trial)
    relative = sampler.sample_relative(study, trial, sampler.infer_relative_search_space(study, trial))
    enqueued = trial.system_attrs.get("fixed_params", {})
    for name in distributions.keys() & enqueued.keys():
        _check(name, enqueued[name], distributions[name])
    known = relative | enqueued | trial.params
    return {
        name: known[name] if name in known else sampler.sample_independent(study, trial, name, distribution)
        for name, distribution in distributions.items()
    }


def _check(name: str, value: Any, distribution: BaseDistribution) -> None:
    try:
        fits = distribution._contains(distribution.to_internal_repr(value))  # noqa: SLF001 - as Optuna checks it
    except ValueError:
        fits = False
    if not fits:
        raise UnfitConfigurationError(f"enqueued with {name} = {value!r}, which is not in {distribution}")


def _set_aside(study: Study) -> list[FrozenTrial]:
    failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return [trial for trial in failed if trial.user_attrs.get("set_aside")]
