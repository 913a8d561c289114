"""What the name of a sampler stands for: who is asked, and what of a study's history it sees."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial

from tuner.config import SamplerName
from tuner.errors import UsageError, first_line, unknown_name
from tuner.search.history import clipped, most_telling, with_log_time

STARTUP = 12
"""Sobol points before a model is asked, at least: twice the number of the built-in hyperparameters,
and two more."""

GP_HISTORY = 240
"""A Gaussian process takes time with the cube of what it sees:
of longer histories it sees the most telling part."""

AUTO: SamplerName = "kg"
"""What `auto` means, also in studies that are continued (docs/decisions/0008)."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a named sampler is used: made anew for each ask, with a seed;
    None draws the quasi-random points alone.
    """

    make: Callable[[int], BaseSampler] | None
    jointly: bool = True
    startup: int = STARTUP
    waits: bool = True
    shown: Callable[[list[FrozenTrial]], list[FrozenTrial]] = lambda trials: trials
    """What the model sees of the finished trials."""
    repeats: bool = False
    """It begins with rates around the default's and each other hyperparameter by itself
    (`tuner.search.beginning`); others begin with quasi-random points. Then it is asked for the next
    run (`tuner.search.next_run`), which may be one more of a known configuration; `make` is asked
    where there is no run of the default to go by."""


def _gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(seed=seed, multivariate=False, constant_liar=True, n_startup_trials=1)


# One parameter at a time, as Optuna does for several objectives: drawn together it searched worse.
_TPE = Method(_tpe, jointly=False)
_METHODS: Mapping[str, Method] = {
    "kg": replace(_TPE, repeats=True),
    "gp": Method(
        _gp, shown=lambda trials: clipped(with_log_time(most_telling(trials, GP_HISTORY)))
    ),
    "tpe": _TPE,
    "nsga2": Method(lambda seed: NSGAIISampler(seed=seed), startup=0, waits=False),
    "random": Method(lambda seed: RandomSampler(seed=seed), jointly=False, startup=0, waits=False),
    "qmc": Method(None, waits=False),
}


def prunes(sampler: str, said: bool | None) -> bool:
    """Whether dominated trials are ended early: as somebody said, and else unless the sampler runs
    configurations again. To that one a single run says little, and so does one that dominates; and
    where unlucky runs are ended, what is left of a configuration makes it look better than it is
    (docs/decisions/0007).
    """
    return not method_of(sampler).repeats if said is None else said


_OPTUNAS = {"tpe": "TPE", "gp": "GP", "nsga2": "NSGAII", "random": "Random", "qmc": "QMC"}
_OPTUNAS["auto"] = _OPTUNAS["tpe"]


def own_sampler(name: str, seed: int) -> BaseSampler:
    """The sampler of a search over a function: one of Optuna's by our name for it, or the class
    that `module:Class` names.

    Raises:
        UsageError: there is none of that name.
    """
    if ":" not in name and name not in _OPTUNAS:
        raise unknown_name("sampler", name, _OPTUNAS, more=", or module:Class")
    where = name if ":" in name else f"optuna.samplers:{_OPTUNAS[name]}Sampler"
    module, _, kind = where.partition(":")
    try:
        made: Any = getattr(importlib.import_module(module), kind)
        assert issubclass(made, BaseSampler), "it is no sampler of Optuna's kind"
        takes = "seed" in inspect.signature(made).parameters
        sampler: BaseSampler = made(seed=seed) if takes else made()
    except (ImportError, AttributeError, TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"sampler {name!r} cannot be made: {first_line(error)}") from None
    return sampler


def method_of(name: str) -> Method:
    """How the sampler of this name is used."""
    if ":" in name:
        return Method(functools.partial(own_sampler, name))
    return _METHODS[AUTO if name == "auto" else name]
