"""What samplers have in common that suggest all parameters of a space at once."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import Study
from optuna.trial import FrozenTrial


class WholeSpaceSampler(BaseSampler):
    """A sampler whose `sample_relative` gives every parameter of its space."""

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        # Only reached for a parameter outside the space, which no study of ours has.
        return RandomSampler().sample_independent(study, trial, param_name, param_distribution)
