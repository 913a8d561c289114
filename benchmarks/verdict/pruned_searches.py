"""Does a search that expects noise gain from pruning? Judged by what its user gets, at equal GPU seconds.

    python benchmarks/verdict/pruned_searches.py --searches 10 --jobs 2 --output benchmarks/verdict/pruned-searches

Searches by `kg` as in kg_variants.py, with pruning and without. How probably a first run is pruned, after which share of its
time, and what is told of it then, is what the pruner would have done to repeated runs of real searches
(benchmarks/pruning/repeats.json): the simulation has no curves. Each search is as strict as one of those, drawn at random.
Truths for tuning and for reporting are told apart; nothing was chosen on either. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.pruning.repeats import inside
from benchmarks.verdict.budgets import BESIDE_S, Gpu, Place
from benchmarks.verdict.next_runs import Pruned, Searched
from benchmarks.verdict.noisy_methods import BUDGET_S, Outcome, best, outcome
from benchmarks.verdict.noisy_searches import summary
from benchmarks.verdict.noisy_searches_table import lines
from benchmarks.verdict.over_truths import ratio_over_truths
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.truths import TRUTHS, Training, truth
from tuner.search.bounds import Caution
from tuner.spec.pareto import front_indices

REPEATS = Path(__file__).parents[1] / "pruning" / "repeats.json"
ALL, NONE = "kg, first runs pruned", "kg, nothing pruned"


class PrunedSearch(Searched):
    """A search whose first runs are pruned as the pruner would."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu, "kg")
        self._on = gpu
        self._found = json.loads(REPEATS.read_text(encoding="utf-8"))
        self._random = np.random.default_rng([gpu.seed, truth(gpu.name).made.seed, 99])
        self._at_the_front = float(self._random.choice(self._found["at_the_front"]))
        self.pruned, self.pruned_s = 0, 0.0

    def trained(self, where: Place) -> Training | Pruned:
        drawn = self._on.drawn(where)
        ran = {place for place, _ in self._on.trained}
        if where in ran or not self._ends(drawn):
            self._on.record(where, drawn)
            return drawn
        took = self._found["share_of_time"] * drawn.seconds + BESIDE_S
        self._on.wait(took)
        self.pruned, self.pruned_s = self.pruned + 1, self.pruned_s + took
        seconds, mql = self._found["optimistic_over_end"]
        return Pruned(seconds * drawn.seconds, mql * drawn.mql)

    def _ends(self, drawn: Training) -> bool:
        trained = [training for _, training in self._on.trained]
        points = [(each.seconds, each.mql) for each in trained if each.converged]
        if len(trained) < Caution().min_finished or not points:
            return False
        front = [points[i] for i in front_indices(points)]
        depth = inside((drawn.seconds, drawn.mql), front)
        odds = self._at_the_front + self._found["slope"] * depth
        return bool(self._random.random() < 1 / (1 + math.exp(-odds)))


@dataclass(frozen=True, slots=True)
class Pair:
    """Both ways of one search, and what was pruned of the first."""

    outcomes: tuple[Outcome, Outcome]
    pruned: int
    pruned_share: float


def searched(name: str, seed: int) -> Pair:
    with_pruning = Gpu(name, seed, BUDGET_S)
    search = PrunedSearch(with_pruning)
    search.spend()
    without = Gpu(name, seed, BUDGET_S)
    Searched(without, "kg").spend()
    found = outcome(with_pruning, ALL, best), outcome(without, NONE, best)
    return Pair(found, search.pruned, search.pruned_s / with_pruning.spent_s)


def compared(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Time that is left without pruning over that with it, of what stands after a confirmation, in
    logarithms: truths count alike, whatever their searches.
    """
    apart: dict[str, list[float]] = {}
    for pair in pairs:
        pruned, whole = pair.outcomes
        gained = whole.recommended.log_gain - pruned.recommended.log_gain
        apart.setdefault(pruned.truth, []).append(-gained)
    ratio, low, high = ratio_over_truths(apart.values())
    return {"ratio": ratio, "low": low, "high": high, "pairs": len(pairs)}


def said(pairs: Sequence[Pair]) -> list[str]:
    shares = sorted(pair.pruned_share for pair in pairs)
    found = compared(pairs)
    return [
        "",
        (
            f"Without pruning {found['ratio']:.2f} [{found['low']:.2f}, {found['high']:.2f}] times as much time is left "
            f"({found['pairs']} pairs). Pruned runs took {np.median(shares):.0%} of the seconds (median), "
            f"{shares[0]:.0%} to {shares[-1]:.0%}; {np.mean([share >= 0.2 for share in shares]):.0%} of searches spent a fifth "
            "or more on them."
        ),
        "",
    ]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=4, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    todo = [(made.name, seed) for made in TRUTHS for seed in range(options.searches)]
    pairs = list(of_each_search(searched, todo, options.jobs))
    document: dict[str, Any] = {"budget_s": BUDGET_S, "searches": options.searches, "parts": []}
    text: list[str] = []
    for title, report in (("Truths for tuning", False), ("Truths for reporting", True)):
        names = {made.name for made in TRUTHS if made.report == report}
        mine = [pair for pair in pairs if pair.outcomes[0].truth in names]
        methods = [summary([pair.outcomes[i] for pair in mine]) for i in (0, 1)]
        part = {"methods": methods, "calibration": [], "compared": compared(mine)}
        document["parts"].append(part | {"title": title, "pairs": [asdict(pair) for pair in mine]})
        text += [f"## {title}", "", *lines(part | document), *said(mine)]
    document["compared"] = compared(pairs)
    text += ["## All", *said(pairs)]
    publish(options.output, "simulated", document, text)


if __name__ == "__main__":
    main()
