"""Made jobs: what each hyperparameter does is written down here, so a search can be judged where
nothing was recorded, and where other things decide than on the reference job.

Nine kinds. Of six another knob than the learning rate decides: the batch, the width, dropout,
hyperparameters of the network's own, the batch together with the rate, and what is there under a
condition alone. Of two the rate decides, above the default and below it; of one there is nothing to
gain. What a kind leaves open (how much there is to gain, where, at what price) is drawn by a seed.
Kinds and seeds were committed before any method was tried on them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.verdict.truths import (
    LEAST_EPOCHS,
    MOST_EPOCHS,
    NOISE_OF_RETUNES,
    Truth,
)
from tuner.spec.space import SearchSpace

Array = np.ndarray[Any, Any]
Params = Mapping[str, Any]

OTHER_KNOBS = ("batch", "width", "dropout", "own", "batch with rate", "condition")
OF_THE_RATE = ("higher rate", "lower rate")
KINDS = (*OTHER_KNOBS, *OF_THE_RATE, "nothing")
SEEDS = tuple(range(1, 51))
"""Jobs of each kind."""

DEFAULT_EPOCHS, DEFAULT_EPOCH_S, DEFAULT_MQL = 50.0, 0.02, 0.8
DEFAULT: Params = {
    "learning_rate": 3e-4,
    "weight_decay": 1e-4,
    "dropout": 0.1,
    "hidden_size": 64,
    "batch_size": 256,
}
WORST = 0.025
"""How much higher an error one knob alone can make. So 1 to 18 % of a space are within 1 % of the
default's error, of recorded jobs 25 to 43 %: these are a little harder."""
OWN: Mapping[str, Params] = {
    "own": {"depth": 4, "momentum": 0.5},
    "condition": {"norm": "layer"},
}
"""The defaults of the hyperparameters that a kind has beside these."""
_SPACE: Mapping[str, Any] = {
    "learning_rate": {"low": 1e-5, "high": 1e-2, "scale": "log"},
    "weight_decay": {"low": 1e-6, "high": 1e-1, "scale": "log", "zero": True},
    "dropout": {"low": 0.0, "high": 0.5},
    "hidden_size": {"low": 16, "high": 256},
    "batch_size": {"low": 32, "high": 2048},
}
_MOMENTUM = {"type": "float", "low": 0.0, "high": 0.95}
_OWN_SPACE: Mapping[str, Mapping[str, Any]] = {
    "own": {"depth": {"type": "int", "low": 1, "high": 8}, "momentum": _MOMENTUM},
    "condition": {
        "norm": {"type": "choice", "choices": ["layer", "batch", "none"]},
        "momentum": _MOMENTUM | {"when": {"norm": ["batch"]}},
    },
}


@dataclass(frozen=True, slots=True)
class Knob:
    """What moving one value does, by how far it is from the default's, in units of `width`.

    The time falls towards `best` by `gain` (of its logarithm), and rises on the other side and
    beyond; the error rises by `price` at the best value and steeply after it.
    """

    best: float
    gain: float
    width: float
    price: float

    def log_time(self, moved: float) -> float:
        there = math.exp(-0.5 * ((moved - self.best) / self.width) ** 2)
        here = math.exp(-0.5 * (self.best / self.width) ** 2)
        return -self.gain * (there - here) / (1 - here) if here < 1 else 0.0

    def error(self, moved: float) -> float:
        """Relative to the default's."""
        towards = moved / self.best
        beyond = max(0.0, abs(moved - self.best / 2) - abs(self.best) / 2) / self.width
        return self.price * min(max(towards, 0.0), 1.0) + WORST * (1 - math.exp(-0.1 * beyond**2))


def _knob(
    random: np.random.Generator, best: float, width: float, *, decides: bool, share: float = 1.0
) -> Knob:
    """One that decides saves half of the time or more, or that `share` of it; another one little."""
    gain = share * random.uniform(0.7, 1.1) if decides else random.uniform(0.0, 0.08)
    far = random.uniform(0.8, 1.2)
    price = random.uniform(-0.002, 0.005) if decides else random.uniform(0.0, 0.003)
    return Knob(best * far, gain, width, price)


@dataclass(frozen=True, slots=True)
class MadeAs:
    """Which job; named and numbered like the truths that are fitted from recordings."""

    kind: str
    draw: int
    report: bool = True

    @property
    def name(self) -> str:
        return f"made, {self.kind}, {self.draw}"

    @property
    def seed(self) -> int:
        return 1000 * (1 + KINDS.index(self.kind)) + self.draw


JOBS = tuple(MadeAs(kind, draw) for draw in SEEDS for kind in KINDS)


class MadeJob(Truth):
    """A job without noise, and with that of recorded trainings."""

    def __init__(self, made: MadeAs) -> None:
        self.made, self.name = made, made.name  # type: ignore[assignment]
        self.noise = NOISE_OF_RETUNES
        self.default = dict(DEFAULT) | dict(OWN.get(made.kind, {}))
        self.space = SearchSpace.model_validate({**_SPACE, **_OWN_SPACE.get(made.kind, {})})
        random = np.random.default_rng([2026, made.seed])
        kind, sign = made.kind, random.choice([-1.0, 1.0])
        rate = {"higher rate": 1.8, "lower rate": -1.5}.get(kind, 0.4 * sign)
        self._knobs = {
            "learning_rate": _knob(random, rate, 1.0, decides=kind in OF_THE_RATE),
            "weight_decay": _knob(random, sign, 4.0, decides=False),
            "dropout": _knob(
                random, 0.2 if kind == "dropout" else 0.05, 0.12, decides=kind == "dropout"
            ),
            "hidden_size": _knob(
                random, -2.0 if kind == "width" else sign, 1.0, decides=kind == "width"
            ),
            "batch_size": _knob(
                random, 2.0 * sign if kind == "batch" else sign, 1.0, decides=kind == "batch"
            ),
            "depth": _knob(random, -2.0, 1.2, decides=kind == "own", share=0.5),
            "momentum": _knob(random, 0.4, 0.25, decides=kind == "own", share=0.5),
        }
        self._together = _knob(random, 2.0, 1.0, decides=True)
        self._of_norm = _knob(random, 0.3, 0.25, decides=True)
        self._shared = random.uniform(0.3, 0.6)
        """Of the time that is saved or lost, how much comes by the seconds of an epoch."""

    def mql(self, where: Array) -> Array:
        return np.array([DEFAULT_MQL * (1 + self._effect(row)[1]) for row in where])

    def log_epochs(self, where: Array) -> Array:
        moved = np.array([self._effect(row)[0] for row in where])
        found = math.log(DEFAULT_EPOCHS) + (1 - self._shared) * moved
        return np.clip(found, math.log(LEAST_EPOCHS), math.log(1.5 * MOST_EPOCHS))

    def _log_epoch_s(self, where: Array) -> Array:
        moved = np.array([self._effect(row)[0] for row in where])
        found: Array = math.log(DEFAULT_EPOCH_S) + self._shared * moved
        return found

    def where(self, params: dict[str, Any]) -> Array:
        return np.array([self.space.shares(self.space.only_there(params))])

    def _effect(self, row: Array) -> tuple[float, float]:
        """Of the logarithm of the time, and of the error relative to the default's."""
        return self._at(tuple(float(each) for each in row))

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - jobs are kept as long as the process
    def _at(self, place: tuple[float, ...]) -> tuple[float, float]:
        params = self.space.at(list(place))
        moved = _moved(params, self.default)
        kind = self.made.kind  # type: ignore[attr-defined]
        if kind == "nothing":
            away = sum((each / self._knobs[name].width) ** 2 for name, each in moved.items())
            return 0.1 * math.sqrt(away), WORST * (1 - math.exp(-0.1 * away))
        time = error = 0.0
        rate_for_batch = 0.0
        if kind == "batch with rate":
            # A batch so many times as large wants a rate as many times as high.
            batch = moved.pop("batch_size")
            rate_for_batch = math.log(2) * batch
            time += self._together.log_time(batch)
            error += self._together.error(batch)
        if kind == "condition":
            norm = str(params["norm"])
            if norm == "batch":
                further = float(params["momentum"]) - 0.5
                moved.pop("momentum", None)
                time += self._of_norm.log_time(further) - 0.1
                error += self._of_norm.error(further)
            else:
                time += 0.3 * (norm == "none")
                error += 0.02 * (norm == "none")
        for name, each in moved.items():
            knob, far = self._knobs[name], each
            if name == "learning_rate" and rate_for_batch:
                far = each - rate_for_batch
                time += 0.35 * far**2
            time += knob.log_time(far)
            error += knob.error(far)
        return time, error


def _moved(params: Params, default: Params) -> dict[str, float]:
    """How far each number is from the default's: rates by the logarithm, sizes in doublings."""
    found: dict[str, float] = {}
    for name, value in params.items():
        if isinstance(value, str):
            continue
        was = default.get(name, 0.5)
        if name in ("learning_rate", "weight_decay"):
            least = 1e-7
            found[name] = math.log(max(value, least) / max(was, least))
        elif name in ("hidden_size", "batch_size"):
            found[name] = math.log2(value / was)
        else:
            found[name] = float(value) - float(was)
    return found


@functools.cache
def job(name: str) -> MadeJob:
    """The made job of this name, made once a process."""
    return MadeJob(next(made for made in JOBS if made.name == name))
