"""Does a search gain by beginning with the front of another architecture, as `--warm-start` does?

    python benchmarks/verdict/warm_starts.py --searches 2 --output OUT/warm-starts

For each truth for tuning, a search by `kg` of a truth of another variant; then searches that begin with
its front and searches that do not, on the same seeds, by budgets of GPU seconds. What is recommended is
confirmed 200 times in steps on 60 seeds; where nothing is claimed, the default's time stands. Writes
OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.budgets import Gpu, Judged, Place, judged
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.others_rules import steps
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.truths import TRUTHS, truth
from tuner.spec.margin import CONFIRMATION_SEEDS, LEAST_RUNS
from tuner.spec.pareto import front_indices

BUDGETS_S = (84.0, 240.0)
SOURCE_S, SETTLED_AFTER = 240.0, 0.9
HEADER = (
    "| GPU seconds | cold | warm | warm over cold, 90 % | something claimed | what stands is beyond "
    "the margin |"
)
STUDENT_90 = 1.7
"""About what Student's t takes at 90 % with 14 degrees of freedom and more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One search, with a beginning or without."""

    truth: str
    source: str
    seed: int
    budget_s: float
    warm: bool
    began_with: int
    found: Judged


def source_of(name: str) -> str:
    """The first truth for tuning that is of another variant: an architecture that was there before."""
    variant = truth(name).made.variant
    others = [made.name for made in TRUTHS if not made.report and made.variant != variant]
    return others[0]


def front_of(gpu: Gpu) -> list[Place]:
    """The configurations on the front of medians, as a study shows it."""
    runs: dict[Place, list[tuple[float, float]]] = {}
    for where, training in gpu.trained:
        if training.converged:
            runs.setdefault(where, []).append((training.seconds, training.mql))
    points = []
    for each in runs.values():
        seconds, mqls = zip(*each, strict=True)
        points.append((statistics.median(seconds), statistics.median(mqls)))
    places = list(runs)
    return [places[i] for i in front_indices(points) if places[i] != gpu.default]


def moved(places: Sequence[Place], source: str, name: str) -> list[Place]:
    """The same configurations in the space of another truth, or what is nearest to them there."""
    old, job = truth(source).space, truth(name)
    new = job.space
    return [tuple(new.shares(new.nearest(old.at(place), job.default))) for place in places]


def compared(name: str, seed: int) -> list[Row]:
    source = source_of(name)
    before = Gpu(source, seed, SOURCE_S)
    Searched(before, "kg", settled_after=SETTLED_AFTER, ahead=True).spend()
    front = moved(front_of(before), source, name)
    rows = []
    for budget in BUDGETS_S:
        for first in ((), front):
            gpu = Gpu(name, seed, budget)
            Searched(gpu, "kg", settled_after=SETTLED_AFTER, ahead=True, first=first).spend()
            found = judged(gpu, steps(gpu, LEAST_RUNS), seeds=CONFIRMATION_SEEDS)
            rows.append(
                Row(
                    truth=name,
                    source=source,
                    seed=seed,
                    budget_s=budget,
                    warm=bool(first),
                    began_with=len(first),
                    found=found,
                )
            )
    return rows


def summary(rows: Sequence[Row], budget: float) -> dict[str, Any]:
    """Of one budget; searches count alike."""
    here = [row for row in rows if row.budget_s == budget]
    cold, warm = ([row.found for row in here if row.warm == which] for which in (False, True))
    apart = [a.log_gain - b.log_gain for a, b in zip(cold, warm, strict=True)]
    mean, error = float(np.mean(apart)), float(np.std(apart, ddof=1)) / math.sqrt(len(apart))
    return {
        "budget_s": budget,
        "searches": len(cold),
        "cold": math.exp(-float(np.mean([each.log_gain for each in cold]))),
        "warm": math.exp(-float(np.mean([each.log_gain for each in warm]))),
        "ratio": [math.exp(mean + side * STUDENT_90 * error) for side in (0, -1, 1)],
        "claimed": [float(np.mean([e.confirmed for e in each])) for each in (cold, warm)],
        "wrong": [float(np.mean([e.wrong for e in each])) for each in (cold, warm)],
    }


def lines(document: dict[str, Any]) -> list[str]:
    text = [HEADER, "|---|---|---|---|---|---|"]
    for s in document["budgets"]:
        ratio, low, high = s["ratio"]
        claimed, wrong = (" and ".join(f"{v:.1%}" for v in s[k]) for k in ("claimed", "wrong"))
        text.append(
            f"| {s['budget_s']:.0f} | {s['cold']:.3f} | {s['warm']:.3f} | {ratio:.2f} [{low:.2f}, "
            f"{high:.2f}] | {claimed} | {wrong} |"
        )
    return [*text, "", f"{document['budgets'][0]['searches']} searches each way."]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=2, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in TRUTHS if not made.report]
    todo = [(name, seed) for name in names for seed in range(options.searches)]
    rows: list[Row] = []
    for each in of_each_search(compared, todo, options.jobs):
        rows += each
    document = {
        "budgets": [summary(rows, budget) for budget in BUDGETS_S],
        "rows": [asdict(row) for row in rows],
    }
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
