"""Does a search suffer from many workers that ask at once? Judged by what its user gets, at equal trials.

    python benchmarks/verdict/many_workers.py --searches 6 --output OUT/many-workers

Each truth is searched by the same seeds with 1, 4, 16 and 64 workers, 400 trials in all: a worker asks
for its next trial when its last one has ended, whatever the others are at. What is recommended is
confirmed 200 times in steps on 60 seeds; where nothing is claimed, the default's time stands. What is
compared, truth by truth and seed by seed, is the logarithm of what stands. A search is kept in a file
when it ends; the same command goes on where it stopped. `--label` tells searches of another state of
the code apart, which `--against` compares. Writes OUTPUT.md and OUTPUT.json.
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

from benchmarks.verdict.asynchronous import Asynchronous
from benchmarks.verdict.budgets import Gpu, judged
from benchmarks.verdict.over_truths import ratio_over_truths
from benchmarks.verdict.simulation_files import kept, options_of, publish, searches_in
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import TRUTHS
from tuner.spec.margin import CONFIRMATION_SEEDS
from tuner.verdict.runs_model import RunsModel

CACHE = Path(__file__).parent / "many-searches.jsonl"
WORKERS, TRIALS = (1, 4, 16, 64), 400
NO_BUDGET_S = 1e9
HEADER = (
    "| workers | time that stands | over one worker's, 95 % | something claimed | what stands is "
    "beyond the margin | asked blind | asked for twice at once | configurations | a suggestion, ms |"
)


def searched(name: str, seed: int, workers: int, trials: int, label: str) -> dict[str, Any]:
    """One search and what its user gets."""
    gpu = Gpu(name, seed, NO_BUDGET_S)
    search = Asynchronous(gpu, workers, trials)
    search.run()
    runs = gpu.runs()
    places = steps_tested(RunsModel(runs, 0), runs)
    return {
        "truth": name,
        "seed": seed,
        "workers": workers,
        "trials": trials,
        "label": label,
        "took_s": search.took_s,
        "ask_s": search.late_ask_s(),
        "cpu_s": sum(search.ask_s),
        "blind": search.blind,
        "doubled": search.doubled,
        "configurations": len({where for where, _ in gpu.trained}),
        "tested": len(places),
    } | asdict(judged(gpu, places, seeds=CONFIRMATION_SEEDS))


def ratio(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[float]:
    """What stands of `rows` over what stands of the others with the same truths and seeds: the
    mean, and the 95 % interval. Truths are the ones there are; seeds within them vary.
    """
    theirs = {(row["truth"], row["seed"]): row["log_gain"] for row in others}
    apart: dict[str, list[float]] = {}
    for row in rows:
        if (row["truth"], row["seed"]) in theirs:
            difference = theirs[row["truth"], row["seed"]] - row["log_gain"]
            apart.setdefault(row["truth"], []).append(difference)
    if not apart or min(len(each) for each in apart.values()) < 2:
        return [math.nan] * 3
    return list(ratio_over_truths(apart.values()))


def summary(rows: Sequence[dict[str, Any]], one: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of searches with one number of workers; truths count alike."""
    truths = list(dict.fromkeys(row["truth"] for row in rows))
    gains = [np.mean([r["log_gain"] for r in rows if r["truth"] == name]) for name in truths]
    return {
        "workers": rows[0]["workers"],
        "searches": len(rows),
        "time_that_stands": math.exp(-float(np.mean(gains))),
        "by_truth": dict(zip(truths, [math.exp(-gain) for gain in gains], strict=True)),
        "ratio": ratio(rows, one),
        "claimed": float(np.mean([row["confirmed"] for row in rows])),
        "wrong": float(np.mean([row["wrong"] for row in rows])),
    } | {
        key: float(np.mean([row[key] for row in rows]))
        for key in ("blind", "doubled", "configurations", "ask_s", "took_s", "cpu_s")
    }


def lines(document: dict[str, Any]) -> list[str]:
    searches = document["ways"][0]["searches"]
    text = [
        f"{document['trials']} trials each, {searches} searches each way. 1 is the default's time.",
        "",
        HEADER,
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for s in document["ways"]:
        middle, low, high = s["ratio"]
        text.append(
            f"| {s['workers']} | {s['time_that_stands']:.3f} | {middle:.3f} [{low:.3f}, {high:.3f}] "
            f"| {s['claimed']:.0%} | {s['wrong']:.1%} | {s['blind']:.0f} | {s['doubled']:.1f} "
            f"| {s['configurations']:.0f} | {1e3 * s['ask_s']:.0f} |"
        )
    if document["against"]:
        text += ["", f"Over {document['against']!r}, the same truths, seeds and workers:", ""]
        for s in document["ways"]:
            middle, low, high = s["over"]
            text.append(f"- {s['workers']} workers: {middle:.3f} [{low:.3f}, {high:.3f}]")
    text += ["", "Time that stands by truth:", ""]
    for s in document["ways"]:
        each = "; ".join(f"{name} {value:.2f}" for name, value in s["by_truth"].items())
        text.append(f"- {s['workers']} workers: {each}.")
    return text


def reported(options: Any, names: Sequence[str]) -> dict[str, Any]:
    """All that is there of these truths."""
    there = [
        row
        for row in searches_in(options.cache)
        if row["trials"] == options.trials
        and row["truth"] in names
        and row["seed"] < options.searches
    ]

    def of(label: str, workers: int) -> list[dict[str, Any]]:
        return [row for row in there if row["label"] == label and row["workers"] == workers]

    ways = []
    for workers in options.workers:
        mine = of(options.label, workers)
        if not mine:
            continue
        found = summary(mine, of(options.label, 1) or of(options.against, 1))
        if options.against:
            found["over"] = ratio(mine, of(options.against, workers))
        ways.append(found)
    return {
        "trials": options.trials,
        "label": options.label,
        "against": options.against,
        "ways": ways,
        "rows": [row for row in there if row["label"] in (options.label, options.against)],
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=6, help="of each truth")
    parser.add_argument("--truths", choices=("all", "tuning", "report"), default="all")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--label", default="")
    parser.add_argument("--against", default="", help="a label; no searches are made of it")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    kinds = {"all": (False, True), "tuning": (False,), "report": (True,)}[options.truths]
    names = [made.name for made in TRUTHS if made.report in kinds]
    done = {
        (row["truth"], row["seed"], row["workers"])
        for row in searches_in(options.cache)
        if row["trials"] == options.trials and row["label"] == options.label
    }
    todo = []
    for seed in range(options.searches):
        for name in names:
            for workers in options.workers:
                if (name, seed, workers) not in done:
                    todo.append((name, seed, workers, options.trials, options.label))
    with ProcessPoolExecutor(options.jobs) as pool:
        made = pool.map(searched, *zip(*todo, strict=True)) if todo else ()
        for row in kept(made, options.cache):
            print(f"{row['truth']} {row['seed']} {row['workers']}", file=sys.stderr, flush=True)
    document = reported(options, names)
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
