"""Searches that expect noise, at equal GPU seconds, by what a user gets at the end.

    python benchmarks/verdict/noisy_searches.py --searches 6 --jobs 2 --output OUT/noisy-searches

Each method spends the same seconds of search and verification on each truth
(benchmarks/verdict/budgets.py). What it recommends is confirmed against the default 200 times; where
a confirmation fails, the default's time stands. Searches of `alternate` are kept in a file that is not
committed. `--report` takes the truths for reporting, `--twice` also lets the last method spend twice
the budget, for what was said of it after the first. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.budgets import Gpu
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.noisy_methods import (
    BUDGET_S,
    METHODS,
    Outcome,
    Spend,
    alternate,
    best,
    outcome,
)
from benchmarks.verdict.noisy_searches_table import lines
from benchmarks.verdict.over_truths import over_truths
from benchmarks.verdict.simulation_files import kept, options_of, publish, searches_in
from benchmarks.verdict.truths import TRUTHS
from tuner.spec.margin import MARGIN

CACHE = Path(__file__).parent / "noisy-searches.jsonl"


def outcomes(found: dict[str, Any], twice: bool) -> list[Outcome]:
    """All methods, from one search by `alternate`, or from nothing."""
    rows: list[Outcome] = []
    spent: dict[Spend, Gpu] = {}
    for name, spend, choose in METHODS:
        if spend not in spent:
            spent[spend] = spend(found)
        rows.append(outcome(spent[spend], name, choose))
    if twice:
        gpu = Gpu(found["truth"], found["seed"], BUDGET_S)
        longer = Searched(gpu, "kg")
        longer.spend()
        gpu.budget_s *= 2
        longer.spend()
        rows.append(outcome(gpu, "the last, with twice the budget", best))
    return rows


def _twice(found: dict[str, Any]) -> list[Outcome]:
    return outcomes(found, True)


def _once(found: dict[str, Any]) -> list[Outcome]:
    return outcomes(found, False)


def by_truth(rows: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for row in rows:
        found.setdefault(row.truth, []).append(row)
    return found


def summary(rows: Sequence[Outcome]) -> dict[str, Any]:
    """Of one method; truths count alike, whatever its searches."""
    each = by_truth(rows)
    gains = {name: [row.recommended.log_gain for row in mine] for name, mine in each.items()}
    mean, error = over_truths(gains.values())
    named = [row.recommended for row in rows if row.recommended.recommended]
    levels = [np.log([row.at_level for row in mine]) for mine in each.values()]
    return {
        "method": rows[0].method,
        "searches": len(rows),
        "after_confirmation": math.exp(-mean),
        "error": math.exp(-mean) * error,
        "by_truth": {name: math.exp(-float(np.mean(mine))) for name, mine in gains.items()},
        "recommended": len(named) / len(rows),
        "truly_within": float(np.mean([one.worse_by <= MARGIN for one in named])),
        "confirmed": float(np.mean([one.confirmed for one in named])),
        "at_level": math.exp(float(np.mean([logs.mean() for logs in levels]))),
        "at_level_within": float(np.mean([row.within_level for row in rows])),
        "at_level_sd": math.sqrt(float(np.mean([np.var(logs, ddof=1) for logs in levels]))),
        "trainings": float(np.mean([row.trainings for row in rows])),
        "configurations": float(np.mean([row.configurations for row in rows])),
    }


def searched(todo: Sequence[tuple[str, int]], cache: Path, pool: ProcessPoolExecutor) -> list[Any]:
    """Searches by `alternate`, from the cache or now."""
    found = {(one["truth"], one["seed"]): one for one in searches_in(cache)}
    missing = [one for one in todo if one not in found]
    if missing:
        for one in kept(pool.map(alternate, *zip(*missing, strict=True)), cache):
            found[one["truth"], one["seed"]] = one
    return [found[one] for one in todo]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=6, help="of each truth")
    parser.add_argument("--report", action="store_true", help="on the truths for reporting")
    parser.add_argument("--twice", action="store_true", help="twice the budget, too")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in TRUTHS if made.report == options.report]
    todo = [(name, seed) for name in names for seed in range(options.searches)]
    rows: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        found = searched(todo, options.cache, pool)
        for each in pool.map(_twice if options.twice else _once, found):
            rows += each
            print(f"{each[0].truth} {each[0].seed}", file=sys.stderr, flush=True)
    methods = list(dict.fromkeys(row.method for row in rows))
    document = {
        "budget_s": BUDGET_S,
        "searches": options.searches,
        "methods": [summary([row for row in rows if row.method == m]) for m in methods],
        "outcomes": [asdict(row) for row in rows],
    }
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
