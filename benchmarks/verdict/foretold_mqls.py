"""Is the MQL that a model expects of a candidate what its confirmation comes to? On recorded retunes.

    python benchmarks/verdict/foretold_mqls.py --output OUT/foretold-mqls
    python benchmarks/verdict/foretold_mqls.py --retunes again --output OUT/foretold-again

A confirmation ran what its search had recommended on 30 or 90 fresh seeds, beside the default. What the model of all runs
(tuner/verdict/runs_model.py) had said of each such configuration before that, over the default's MQL, is held against what
came: by how much it was too good, in standard errors (z), and how probable what came was. Priors are compared
(tuner/search/next_run_model.py). The configurations were chosen by the priors of their time. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()

import numpy as np

from benchmarks.retune.report import read
from benchmarks.verdict.priors import PRIORS, Prior, believing
from benchmarks.verdict.simulation_files import publish
from tuner.spec.margin import MARGIN
from tuner.storage.queue.verifications import is_confirmation
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.known_runs import Run, default_of, runs_of
from tuner.verdict.runs_model import RunsModel

RETUNES = Path(__file__).parents[1] / "retune"
FOLDERS = ("campaign", "h100", "h200-14m")
HEADER = "| prior | candidates | too good by, % of the MQL | z, mean and sd | logarithm of the density | confirmed, as foretold | confirmed |"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that was confirmed beside the default."""

    trial: int
    first: bool
    """What was tested first: the surest."""
    ratio: float
    """The logarithm of its MQL over the default's, on the seeds of both."""
    error: float
    confirmed: bool


@dataclass(frozen=True, slots=True)
class Search:
    """What a search knew, and what became of its candidates."""

    runs: tuple[Run, ...]
    default: int | None
    seeds: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Foretold:
    """Of one candidate under one prior."""

    first: bool
    too_good: float
    z: float
    log_density: float
    chance: float
    confirmed: bool


def retuned(folders: Sequence[str]) -> list[StudySnapshot]:
    """All searches of these retunes."""
    return [study for folder in folders for study in read(RETUNES / folder)]


def recorded(folders: Sequence[str] = FOLDERS) -> list[Search]:
    """The searches of these retunes whose confirmation has something to tell."""
    return [found for study in retuned(folders) if (found := searched(study)) is not None]


def searched(study: StudySnapshot) -> Search | None:
    """As it was before its confirmation; None where that had nothing to test."""
    there = confirmation_of(study)
    if there is None or there.default is None or not there.steps:
        return None
    kept = tuple(run for run in study.runs if not is_confirmation(run.plan))
    before = dataclasses.replace(study, read_runs=lambda: kept)
    candidates = candidates_of(there, there.default.sample().mql)
    return Search(tuple(runs_of(before)), default_of(before), there.seeds, candidates)


def candidates_of(there: Confirmation, default: Mapping[int, float]) -> tuple[Candidate, ...]:
    """In the order in which they were tested."""
    found = []
    for place, step in enumerate(there.steps):
        own = step.sample().mql
        both = sorted(own.keys() & default.keys())
        apart = np.log([own[seed] / default[seed] for seed in both])
        error = float(apart.std(ddof=1)) / math.sqrt(len(both))
        confirmed = place < there.claimed
        found.append(
            Candidate(step.trial_number, place == 0, float(apart.mean()), error, confirmed)
        )
    return tuple(found)


def foretold(search: Search) -> list[Foretold]:
    """Of each candidate, under the prior of now."""
    model = RunsModel(search.runs, search.default)
    chances = model.chance_to_confirm(MARGIN, search.seeds)
    over, variance = model.over_default()
    found = []
    for each in search.candidates:
        at = model.trials.index(each.trial)
        error = math.hypot(math.sqrt(variance[at]), each.error)
        z = (each.ratio - float(over[at])) / error
        found.append(
            Foretold(
                each.first,
                each.ratio - float(over[at]),
                z,
                -math.log(error * math.sqrt(2 * math.pi)) - z**2 / 2,
                float(chances[at]),
                each.confirmed,
            )
        )
    return found


def row(prior: Prior, which: str, rows: Sequence[Foretold]) -> dict[str, Any]:
    zs = [each.z for each in rows]
    return {
        "prior": asdict(prior),
        "which": which,
        "candidates": len(rows),
        "too_good": float(np.mean([each.too_good for each in rows])),
        "z": (float(np.mean(zs)), float(np.std(zs, ddof=1))),
        "log_density": float(np.mean([each.log_density for each in rows])),
        "foretold": float(np.mean([each.chance for each in rows])),
        "confirmed": float(np.mean([each.confirmed for each in rows])),
    }


def line(found: Mapping[str, Any]) -> str:
    mean, sd = found["z"]
    return (
        f"| {found['prior']['name']} | {found['candidates']} {found['which']} | {100 * found['too_good']:.2f} | {mean:+.2f}, {sd:.2f} "
        f"| {found['log_density']:.3f} | {found['foretold']:.0%} | {found['confirmed']:.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--retunes", nargs="+", default=FOLDERS, help="folders of benchmarks/retune"
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    searches = recorded(options.retunes)
    found = []
    for prior in PRIORS:
        with believing(prior):
            rows = [each for search in searches for each in foretold(search)]
        found.append(row(prior, "tested", rows))
        found.append(row(prior, "tested first", [each for each in rows if each.first]))
    text = [HEADER, "|---|---|---|---|---|---|---|", *map(line, found)]
    publish(options.output, "recorded", {"rows": found}, text)


if __name__ == "__main__":
    main()
