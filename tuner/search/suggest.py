"""What a claimed trial is run with: what it already has,
what somebody enqueued, else what the sampler suggests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.config import Value
from tuner.record import is_set_aside
from tuner.spec.ranges import AnyRange
from tuner.spec.space import SearchSpace


class UnfitConfigurationError(ValueError):
    """A trial was enqueued with a value that its space does not hold."""


TRIES = 10
"""Suggestions of a configuration that was set aside
which are refused before one is accepted after all."""


def suggest(study: Study, trial: FrozenTrial, asked: Any, space: SearchSpace) -> dict[str, Value]:
    """A true value for each hyperparameter of `space` that the configuration has, as `Study.ask`
    would choose them for a `trial` that is `asked` for with these values, be it all or none; what
    a genetic sampler notes is added to the trial's system attributes.

    A configuration that was set aside, because it cost several workers their lives, is not
    suggested again (unless the sampler insists, as it must where the space holds nothing else).

    Raises:
        UnfitConfigurationError: it is asked for with a value outside its range.
    """
    if not isinstance(asked, dict | None):
        raise UnfitConfigurationError(f"enqueued with {asked!r}, which is no configuration")
    fixed: dict[str, Any] = asked or {}
    for name, r in space.ranges.items():
        if name in fixed:
            _check(name, fixed[name], r)
    fixed = space.true({name: fixed[name] for name in space.ranges if name in fixed})
    if space.whole(fixed):
        return space.only_there(fixed)
    poison = [space.true(other.params) for other in _set_aside(study)]
    for _ in range(TRIES):
        chosen = _ask_sampler(study, trial, fixed, space)
        if chosen not in poison:
            break
    return chosen


def _ask_sampler(
    study: Study, trial: FrozenTrial, fixed: Mapping[str, Value], space: SearchSpace
) -> dict[str, Value]:
    sampler = study.sampler
    sampler.before_trial(study, trial)
    relative = sampler.sample_relative(
        study, trial, sampler.infer_relative_search_space(study, trial)
    )
    known = space.true(relative | dict(fixed))
    if space.whole(known):
        return space.only_there(known)
    for name, distribution in space.stored().items():
        if name not in known:  # enqueued with a part of a configuration
            known[name] = sampler.sample_independent(study, trial, name, distribution)
    return space.only_there(space.true(known))


def _check(name: str, value: Any, r: AnyRange) -> None:
    if (wrong := r.outside(r.true(value))) is not None:
        raise UnfitConfigurationError(f"enqueued with a value outside the space: {name} = {wrong}")


def _set_aside(study: Study) -> list[FrozenTrial]:
    failed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return [trial for trial in failed if is_set_aside(trial.user_attrs)]
