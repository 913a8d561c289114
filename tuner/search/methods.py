"""What the name of a sampler stands for: who is asked, and what of a study's history it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from tuner.config import SamplerName, Value
from tuner.search.history import clipped, most_telling, with_log_time, within
from tuner.spec.pareto import Point
from tuner.spec.space import SearchSpace

STARTUP = 12
"""Sobol points before a model is asked, at least: twice the number of the built-in hyperparameters,
and two more."""

GP_HISTORY = 240
"""A Gaussian process takes time with the cube of what it sees:
of longer histories it sees the most telling part."""

AUTO: SamplerName = "kg"
"""What `auto` means, also in studies that are continued (docs/decisions/0008)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an ask is about: the space, its default configuration and the corner that this sets, if
    they are known.
    """

    space: SearchSpace
    default: Mapping[str, Value] | None
    corner: Point | None
    seed: int


Shown = Callable[[list[FrozenTrial], Point | None], list[FrozenTrial]]


@dataclass(frozen=True, slots=True)
class Method:
    """How a named sampler is used: made anew for each ask;
    None draws the quasi-random points alone.
    """

    make: Callable[[Asked], BaseSampler] | None
    jointly: bool = True
    startup: int = STARTUP
    waits: bool = True
    shown: Shown = lambda trials, _corner: trials
    """What the model sees of the finished trials."""
    in_turn: Method | None = None
    """Asked for the trials of even numbers."""
    repeats: bool = False
    """It begins with rates around the default's and each other hyperparameter by itself
    (`tuner.search.beginning`); others begin with quasi-random points. Then it is asked for the next
    run (`tuner.search.next_run`), which may be one more of a known configuration; and as said above
    where there is no run of the default to go by."""


def _gp(asked: Asked) -> BaseSampler:
    return GPSampler(seed=asked.seed, n_startup_trials=1, warn_independent_sampling=False)


def _tpe(asked: Asked) -> BaseSampler:
    return TPESampler(seed=asked.seed, multivariate=False, constant_liar=True, n_startup_trials=1)


def _improvement(asked: Asked) -> BaseSampler:
    # scipy's optimiser: a command line that only names it waits.
    from tuner.search.acquisition import ImprovementSampler

    return ImprovementSampler(
        asked.space, seed=asked.seed, corner=asked.corner, default=asked.default
    )


# One parameter at a time, as Optuna does for several objectives: drawn together it searched worse.
_TPE = Method(_tpe, jointly=False)
_ALTERNATE = replace(
    _TPE,
    shown=within,
    in_turn=Method(_improvement, shown=lambda trials, _corner: most_telling(trials, GP_HISTORY)),
)
_METHODS: Mapping[str, Method] = {
    "alternate": _ALTERNATE,
    "kg": replace(_ALTERNATE, repeats=True),
    "gp": Method(
        _gp, shown=lambda trials, _corner: clipped(with_log_time(most_telling(trials, GP_HISTORY)))
    ),
    "tpe": _TPE,
    "nsga2": Method(lambda asked: NSGAIISampler(seed=asked.seed), startup=0, waits=False),
    "random": Method(
        lambda asked: RandomSampler(seed=asked.seed), jointly=False, startup=0, waits=False
    ),
    "qmc": Method(None, waits=False),
}


def prunes(sampler: str, said: bool | None) -> bool:
    """Whether dominated trials are ended early: as somebody said, and else unless the sampler runs
    configurations again. To that one a single run says little, and so does one that dominates; and
    where unlucky runs are ended, what is left of a configuration makes it look better than it is
    (docs/decisions/0007).
    """
    return not method_of(sampler).repeats if said is None else said


def method_of(name: str) -> Method:
    """How the sampler of this name is used."""
    return _METHODS[AUTO if name == "auto" else name]
