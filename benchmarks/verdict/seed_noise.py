"""What does a seed do to the MQL, by how long a training is? On the confirming runs of recorded retunes.

    python benchmarks/verdict/seed_noise.py --output OUT/seed-noise

A confirmation runs the default, and each configuration that it tests, on 30 or 90 seeds: the standard deviation of their
MQLs, and how skew they are. Simulated seeds have the noise that came of it (`NOISE_OF_RETUNES` in truths.py).
Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
import numpy as np

from benchmarks.verdict.foretold_mqls import FOLDERS, retuned
from benchmarks.verdict.simulation_files import publish
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.verified import Verified

LEAST_SEEDS = 20
EDGES = (0.0, 18.0, 20.0, 22.0, 26.0, 40.0, math.inf)
"""Of the mean number of epochs, between which configurations are taken together."""
HEADER = "| epochs | configurations | in the middle | standard deviation of the MQL | skewness |"


@dataclass(frozen=True, slots=True)
class OverSeeds:
    """Of one configuration."""

    epochs: float
    sd: float
    skew: float


@dataclass(frozen=True, slots=True)
class Group:
    """Of the configurations whose trainings are of one length."""

    above: float
    below: float
    configurations: int
    epochs: float
    """In the middle of them."""
    sd: float
    """The root of their mean variance."""
    skew: float

    def line(self) -> str:
        span = f"{self.above:g} to {self.below:g}" if self.below < math.inf else "more"
        return f"| {span} | {self.configurations} | {self.epochs:.1f} | {self.sd:.4f} | {self.skew:.2f} |"


def of_configuration(found: Verified) -> OverSeeds | None:
    """None where too few of its runs converged."""
    results = [run.result for run in found.clean if run.result is not None]
    seen = [each.recorded for each in results if each.recorded.converged]
    if len(seen) < LEAST_SEEDS:
        return None
    mqls = np.array([each.test_mql for each in seen], dtype=float)
    epochs = np.array([each.epochs for each in seen], dtype=float)
    off = mqls - mqls.mean()
    skew = float((off**3).mean() / (off**2).mean() ** 1.5)
    return OverSeeds(float(epochs.mean()), float(mqls.std(ddof=1)), skew)


def of_confirmations(confirmations: Iterable[Confirmation]) -> list[OverSeeds]:
    found = []
    for each in confirmations:
        tested = (each.default, *each.steps)
        found += [of_configuration(one) for one in tested if one is not None]
    return [each for each in found if each is not None]


def recorded(folders: Sequence[str] = FOLDERS) -> list[OverSeeds]:
    """Of every configuration that the confirmations of these retunes ran."""
    return of_confirmations(filter(None, map(confirmation_of, retuned(folders))))


def grouped(found: Sequence[OverSeeds]) -> list[Group]:
    groups = []
    for above, below in itertools.pairwise(EDGES):
        mine = [each for each in found if above <= each.epochs < below]
        if mine:
            sd = math.sqrt(float(np.mean([each.sd**2 for each in mine])))
            epochs = float(np.median([each.epochs for each in mine]))
            skew = float(np.mean([each.skew for each in mine]))
            groups.append(Group(above, below, len(mine), epochs, sd, skew))
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--retunes", nargs="+", default=FOLDERS, help="folders of benchmarks/retune"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    groups = grouped(recorded(options.retunes))
    rows = [asdict(each) | {"below": min(each.below, 1e9)} for each in groups]
    text = [HEADER, "|---|---|---|---|---|", *(each.line() for each in groups)]
    publish(options.output, "recorded", {"rows": rows}, text)


if __name__ == "__main__":
    main()
