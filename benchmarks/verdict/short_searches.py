"""What a search of few trials comes to, by what may be tested at its end.

    python benchmarks/verdict/short_searches.py --searches 4 --jobs 2 --output OUT/short-searches

Searches by `kg` that know how many trials they have, as `tuner launch --trials N` makes them. At
their end a confirmation tests what has run five times, or whatever is expected to save most. A
search's seconds are counted, not limited. Truths for tuning and for reporting are told apart.
Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

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
from benchmarks.verdict.over_truths import over_truths, ratio_over_truths
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import TRUTHS
from tuner.spec.margin import LEAST_RUNS
from tuner.verdict.runs_model import RunsModel

TRIALS = (30, 40, 50, 60, 80, 120, 200)
SEEDS = (90, 30)
OF_EACH = (LEAST_RUNS, 1)
HEADER = (
    "| trials | runs of what is tested | time after confirmation, standard error | over that with "
    "five runs | something tested | something claimed | truly beyond the margin | seconds, search "
    "and confirmation |"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One search, confirmed on so many seeds, by how often what is tested must have run."""

    truth: str
    seed: int
    trials: int
    seeds: int
    searched_s: float
    found: tuple[Judged, ...]
    """As `OF_EACH`."""


def searched(name: str, seed: int) -> list[Ended]:
    ended = []
    for trials in TRIALS:
        gpu = Gpu(name, seed, math.inf)
        Searched(gpu, "kg", trials=trials).spend()
        runs = gpu.runs()
        model = RunsModel(runs, 0)
        for seeds in SEEDS:
            found = [
                judged(gpu, steps_tested(model, runs, of_each=n, seeds=seeds), seeds=seeds)
                for n in OF_EACH
            ]
            ended.append(Ended(name, seed, trials, seeds, gpu.spent_s, tuple(found)))
    return ended


def row(mine: Sequence[Ended], way: int) -> dict[str, Any]:
    """Of searches of as many trials and seeds; truths count alike."""
    gains: dict[str, list[float]] = {}
    apart: dict[str, list[float]] = {}
    for each in mine:
        gain = each.found[way].log_gain
        gains.setdefault(each.truth, []).append(gain)
        apart.setdefault(each.truth, []).append(each.found[0].log_gain - gain)
    mean, error = over_truths(gains.values())
    found = [each.found[way] for each in mine]
    return {
        "trials": mine[0].trials,
        "seeds": mine[0].seeds,
        "of_each": OF_EACH[way],
        "after_confirmation": math.exp(-mean),
        "error": math.exp(-mean) * error,
        "over_five": ratio_over_truths(apart.values()),
        "tested": float(np.mean([one.recommended for one in found])),
        "claimed": float(np.mean([one.confirmed for one in found])),
        "wrong": float(np.mean([one.wrong for one in found])),
        "seconds": float(np.mean([each.searched_s for each in mine])),
        "confirmation_s": float(np.mean([one.confirmation_s for one in found])),
    }


def line(one: dict[str, Any]) -> str:
    ratio, low, high = one["over_five"]
    over = f"{ratio:.2f} [{low:.2f}, {high:.2f}]" if one["of_each"] == 1 else ""
    runs = "five" if one["of_each"] == LEAST_RUNS else "any number"
    return (
        f"| {one['trials']} | {runs} | {one['after_confirmation']:.3f}, {one['error']:.3f} | {over} "
        f"| {one['tested']:.0%} | {one['claimed']:.0%} | {one['wrong']:.1%} "
        f"| {one['seconds']:.0f}, {one['confirmation_s']:.0f} |"
    )


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=4, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    todo = [(made.name, seed) for made in TRUTHS for seed in range(options.searches)]
    every = [ended for each in of_each_search(searched, todo, options.jobs) for ended in each]
    document: dict[str, Any] = {"searches": options.searches, "parts": []}
    text = [f"{options.searches} searches of each truth.", ""]
    for title, report in (("truths for tuning", False), ("truths for reporting", True)):
        names = {made.name for made in TRUTHS if made.report == report}
        part = [ended for ended in every if ended.truth in names]
        rows: list[dict[str, Any]] = []
        for seeds in SEEDS:
            text += [f"## {seeds} seeds, {title}", "", HEADER, "|---|---|---|---|---|---|---|---|"]
            for trials in TRIALS:
                mine = [one for one in part if (one.seeds, one.trials) == (seeds, trials)]
                rows += [row(mine, way) for way in range(len(OF_EACH))]
                text += map(line, rows[-len(OF_EACH) :])
            text.append("")
        document["parts"].append({"title": title, "rows": rows})
    document["searches_ended"] = [asdict(one) for one in every]
    publish(options.output, "simulated", document, text)


if __name__ == "__main__":
    main()
