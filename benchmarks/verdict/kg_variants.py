"""What `--sampler kg` gives, and what it costs, by what it knows: at equal GPU seconds.

    python benchmarks/verdict/kg_variants.py --searches 2 --jobs 2 --output benchmarks/verdict/kg-variants

The searches, what is recommended and how it is confirmed are those of noisy_searches.py, with the
sampler that a user gets, in an Optuna study. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.budgets import Gpu
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.noisy_methods import BUDGET_S, Outcome, best, outcome
from benchmarks.verdict.noisy_searches import summary
from benchmarks.verdict.noisy_searches_table import lines
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.truths import TRUTHS

VARIANTS: Sequence[tuple[str, Callable[[Gpu], Searched]]] = (
    ("kg", lambda gpu: Searched(gpu, "kg")),
    ("kg, nothing new in the last tenth", lambda gpu: Searched(gpu, "kg", settled_after=0.9)),
    (
        "kg, the same, asked for one trial ahead",
        lambda gpu: Searched(gpu, "kg", settled_after=0.9, ahead=True),
    ),
)
RUNS, WITHIN = (50, 150, 300), 10
"""Suggestions are timed after so many runs, give or take."""


def searched(name: str, seed: int) -> tuple[list[Outcome], list[float]]:
    """All variants on one truth, and what the suggestions of the first one took."""
    rows: list[Outcome] = []
    ask_s: list[float] = []
    for method, begin in VARIANTS:
        gpu = Gpu(name, seed, BUDGET_S)
        search = begin(gpu)
        search.spend()
        ask_s = ask_s or search.ask_s
        rows.append(outcome(gpu, method, best))
    return rows, ask_s


def timings(asks: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """Of suggestions after `RUNS` runs, milliseconds."""
    found = []
    for runs in RUNS:
        near = [s for each in asks for s in each[runs - WITHIN : runs + WITHIN]]
        found.append(
            {"runs": runs, "mean_ms": 1e3 * float(np.mean(near)), "most_ms": 1e3 * max(near)}
        )
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=3, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in TRUTHS if not made.report]
    todo = [(name, seed) for name in names for seed in range(options.searches)]
    rows: list[Outcome] = []
    asks: list[list[float]] = []
    for each, ask_s in of_each_search(searched, todo, options.jobs):
        rows += each
        asks.append(ask_s)
    document: dict[str, Any] = {
        "budget_s": BUDGET_S,
        "searches": options.searches,
        "methods": [summary([r for r in rows if r.method == name]) for name, _ in VARIANTS],
        "calibration": [],
        "suggestions": timings(asks),
        "outcomes": [asdict(row) for row in rows],
    }
    text = [
        *lines(document),
        "",
        "| runs | a suggestion, ms of one core, mean | most |",
        "|---|---|---|",
    ]
    for t in document["suggestions"]:
        text.append(f"| {t['runs']} | {t['mean_ms']:.0f} | {t['most_ms']:.0f} |")
    publish(options.output, "simulated", document, text)


if __name__ == "__main__":
    main()
