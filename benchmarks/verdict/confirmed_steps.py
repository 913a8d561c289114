"""What stands after a confirmation, by how many configurations are tested and on how many seeds.

    python benchmarks/verdict/confirmed_steps.py --searches 6 --output OUT/confirmed-steps
    python benchmarks/verdict/confirmed_steps.py --searches 8 --report --output OUT/confirmed-steps-report
    python benchmarks/verdict/confirmed_steps.py --searches 4 --longer --output OUT/longer-confirmations

Searches by `kg`, a budget of GPU seconds each; what they recommend is confirmed 200 times each way
(benchmarks/verdict/budgets.py). Where nothing is claimed, the default's time stands. `--report`
takes the truths for reporting. `--longer` asks instead whether more seconds are better spent on a
confirmation or on the search before it. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import functools
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

from benchmarks.verdict.budgets import Gpu, Judged, judged
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.over_truths import over_truths
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import TRUTHS
from tuner.verdict.runs_model import RunsModel

SETTLED_AFTER = 0.9
WAYS = ((1, 30), (3, 30), (1, 60), (3, 60))
"""Steps, and seeds of each."""
HEADER = (
    "| search | confirmation | time that stands, standard error | something claimed "
    "| what stands is beyond the margin | steps | median seconds of a confirmation |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How long, and whether a trial is asked for while the one before it trains."""

    budget_s: float
    ahead: bool
    ways: Sequence[tuple[int, int]]

    @property
    def name(self) -> str:
        return f"{self.budget_s:.0f} s{', asked one trial ahead' if self.ahead else ''}"


SEARCHES = (
    Search(budget_s=240.0, ahead=False, ways=WAYS),
    Search(budget_s=240.0, ahead=True, ways=((3, 60),)),
    Search(budget_s=180.0, ahead=False, ways=((1, 60), (3, 60))),
)
LONGER = (
    Search(budget_s=240.0, ahead=True, ways=((3, 60), (3, 90), (3, 120))),
    Search(budget_s=300.0, ahead=True, ways=((3, 60),)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One search, confirmed in one way."""

    truth: str
    seed: int
    search: str
    steps: int
    seeds: int
    tested: int
    found: Judged


def confirmed(searches: Sequence[Search], name: str, seed: int) -> list[Row]:
    """Searches of one truth with one seed, each confirmed in its ways."""
    rows = []
    for search in searches:
        gpu = Gpu(name, seed, search.budget_s)
        Searched(gpu, "kg", settled_after=SETTLED_AFTER, ahead=search.ahead).spend()
        runs = gpu.runs()
        model = RunsModel(runs, 0)
        for most, seeds in search.ways:
            places = steps_tested(model, runs, seeds=seeds, most=most)
            found = judged(gpu, places, seeds=seeds)
            rows.append(
                Row(
                    truth=name,
                    seed=seed,
                    search=search.name,
                    steps=most,
                    seeds=seeds,
                    tested=len(places),
                    found=found,
                )
            )
    return rows


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Of one search and one way; truths count alike."""
    truths = list(dict.fromkeys(row.truth for row in rows))
    gains = [[row.found.log_gain for row in rows if row.truth == name] for name in truths]
    mean, error = over_truths(gains)
    stands = math.exp(-mean)
    return {
        "search": rows[0].search,
        "steps": rows[0].steps,
        "seeds": rows[0].seeds,
        "time_that_stands": stands,
        "error": stands * error,
        "by_truth": dict(zip(truths, [math.exp(-np.mean(each)) for each in gains], strict=True)),
        "claimed": float(np.mean([row.found.confirmed for row in rows])),
        "wrong": float(np.mean([row.found.wrong for row in rows])),
        "tested": float(np.mean([row.tested for row in rows])),
        "confirmation_s": float(np.median([row.found.confirmation_s for row in rows])),
    }


def lines(document: dict[str, Any]) -> list[str]:
    text = [
        f"{document['searches']} searches of each truth. 1 is the default's time.",
        "",
        HEADER,
        "|---|---|---|---|---|---|---|",
    ]
    for s in document["ways"]:
        steps = "1 step" if s["steps"] == 1 else f"up to {s['steps']} steps"
        text.append(
            f"| {s['search']} | {steps}, {s['seeds']} seeds | {s['time_that_stands']:.3f}, "
            f"{s['error']:.3f} | {s['claimed']:.0%} | {s['wrong']:.1%} | {s['tested']:.1f} "
            f"| {s['confirmation_s']:.0f} |"
        )
    text += ["", "Time that stands by truth:", ""]
    for s in document["ways"]:
        each = "; ".join(f"{name} {value:.2f}" for name, value in s["by_truth"].items())
        text.append(f"- {s['search']}, {s['steps']} x {s['seeds']}: {each}.")
    return text


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=6, help="of each truth")
    parser.add_argument("--report", action="store_true", help="on the truths for reporting")
    parser.add_argument("--longer", action="store_true", help="longer confirmations or searches")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in TRUTHS if made.report == options.report]
    todo = [(name, seed) for name in names for seed in range(options.searches)]
    of_each = functools.partial(confirmed, LONGER if options.longer else SEARCHES)
    rows: list[Row] = []
    for each in of_each_search(of_each, todo, options.jobs):
        rows += each
    ways: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        ways.setdefault((row.search, row.steps, row.seeds), []).append(row)
    document = {
        "searches": options.searches,
        "ways": [summary(each) for each in ways.values()],
        "rows": [asdict(row) for row in rows],
    }
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
