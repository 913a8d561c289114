"""A seed's noise: simulated as it was known before the campaign, or recorded in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.verdict.compare.studies import read_studies
from tuner.verdict.picks import picks_of
from tuner.verdict.verified import verified_in

CAMPAIGN = Path("benchmarks/campaign")
VARIANTS = ("original", "rmsnorm", "layernorm", "simple", "batchnorm")


@dataclass(frozen=True)
class Noise:
    """A seed's noise: standard deviation of log time and of MQL, the distribution's shape, and the share of misses.

    Recorded noise: for each of some configurations, its runs' deviations (runs, 2) of log time and MQL.
    """

    name: str
    time: float
    mql: float
    shape: str = "normal"
    misses: float = 0.0
    recorded: tuple[np.ndarray, ...] = ()

    def deviations(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Of log time and of MQL, of n runs of one configuration."""
        if self.recorded:
            runs = self.recorded[rng.integers(len(self.recorded))]
            drawn = runs[rng.integers(len(runs), size=n)]
            return drawn[:, 0], drawn[:, 1]
        return self.time * draw(rng, self, n), self.mql * draw(rng, self, n)

    def described(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("name", "time", "mql", "shape", "misses")}


NOISES = (
    Noise("quiet", 0.03, 0.006),
    Noise("reference job", 0.05, 0.0073),
    Noise("reference job, uniform ±8.7 % and ±0.0126", 0.05, 0.0073, "uniform"),
    Noise("reference job, heavy tails (t, 3 df)", 0.05, 0.0073, "t3"),
    Noise("reference job, 5 % of runs miss", 0.05, 0.0073, misses=0.05),
    Noise("loud", 0.05, 0.012),
)


def recorded_noises() -> tuple[Noise, Noise]:
    """The campaign's own: of the default configurations, which share their hyperparameters, and of all verified ones."""
    paths = [str(CAMPAIGN / f"etth-{variant}.json.gz") for variant in VARIANTS]
    default, every = [], []
    for study in read_studies(paths, task="etth", storage="sqlite:///none.db"):
        for number, verified in verified_in(study).items():
            found = verified.sample()
            runs = np.array(
                [
                    (np.log(found.seconds[s]), found.mql[s])
                    for s in found.seconds.keys() & found.mql.keys()
                ]
            )
            deviations = (runs - runs.mean(axis=0)) * np.sqrt(len(runs) / (len(runs) - 1))
            every.append(deviations)
            if number == picks_of(study)["default"]:
                default.append(deviations)
    return _recorded("recorded, default configurations", default), _recorded(
        "recorded, all configurations", every
    )


def _recorded(name: str, runs: list[np.ndarray]) -> Noise:
    time, mql = np.sqrt(np.mean(np.square(np.concatenate(runs)), axis=0))
    return Noise(
        f"{name} ({len(runs)})",
        round(float(time), 3),
        round(float(mql), 4),
        "recorded",
        recorded=tuple(runs),
    )


def draw(rng: np.random.Generator, noise: Noise, n: int) -> np.ndarray:
    """`n` standardised deviations of mean 0 and standard deviation 1."""
    if noise.shape == "uniform":
        return rng.uniform(-np.sqrt(3), np.sqrt(3), n)
    if noise.shape == "t3":
        return rng.standard_t(3, n) / np.sqrt(3)
    return rng.normal(size=n)
