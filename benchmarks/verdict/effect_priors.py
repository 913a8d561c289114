"""How large an effect of its own should a configuration be believed to have? By what a search's user gets in the end.

    python benchmarks/verdict/effect_priors.py --searches 10 --jobs 2 --output OUT/effect-priors

Searches by `kg` of 240 GPU seconds, their recommendations confirmed in steps on 90 seeds, under two priors of how much a
configuration differs from what its neighbours say (tuner/search/next_run_model.py). Truths made of retunes, whose surfaces
are known better, and the rougher ones of before; of each those for tuning, by which the prior was chosen, and those for
reporting. `--searches` of each rough truth, and twice as many of each of the others. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.budgets import BUDGET_S, Gpu, judged
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.over_truths import over_truths, ratio_over_truths
from benchmarks.verdict.priors import PRIORS, Prior, believing
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import RETUNED, TRUTHS, Made
from tuner.spec.margin import CONFIRMATION_SEEDS, MARGIN
from tuner.verdict.runs_model import RunsModel

COMPARED = PRIORS[:2]
PARTS = (
    ("Made of retunes, for tuning", RETUNED, False),
    ("Made of retunes, for reporting", RETUNED, True),
    ("Rougher, for tuning", TRUTHS, False),
    ("Rougher, for reporting", TRUTHS, True),
)
HEADER = "| prior | time that stands, standard error | confirmed first, as foretold | confirmed | nothing to test | wrong |"


@dataclass(frozen=True, slots=True)
class Row:
    """One search under one prior."""

    truth: str
    seed: int
    prior: str
    log_gain: float
    foretold: float | None
    """The chance that what is tested first is confirmed, as the model has it; None where nothing is tested."""
    confirmed: float
    """In which share of confirmations it is."""
    wrong: float


def searched(name: str, seed: int) -> list[Row]:
    """Under each prior."""
    return [under(prior, name, seed) for prior in COMPARED]


def under(prior: Prior, name: str, seed: int) -> Row:
    with believing(prior):
        gpu = Gpu(name, seed, BUDGET_S)
        Searched(gpu, "kg").spend()
        runs = gpu.runs()
        model = RunsModel(runs, 0)
        places = steps_tested(model, runs)
        chances = model.chance_to_confirm(MARGIN, CONFIRMATION_SEEDS)
    found = judged(gpu, places, seeds=CONFIRMATION_SEEDS)
    first = None
    if places:
        trial = next(run.trial for run in runs if run.where == places[0])
        first = float(chances[model.trials.index(trial)])
    return Row(name, seed, prior.name, found.log_gain, first, found.confirmed, found.wrong)


def part(title: str, rows: Sequence[Row]) -> dict[str, Any]:
    """What came under each prior, and the quotient of the times that stand; truths count alike."""
    before, after = found = [by_truth(rows, prior) for prior in COMPARED]
    apart = [
        [a.log_gain - b.log_gain for a, b in zip(before[name], after[name], strict=True)]
        for name in before
    ]
    ratio, low, high = ratio_over_truths(apart)
    ways = [summary(prior, truths) for prior, truths in zip(COMPARED, found, strict=True)]
    compared = {"ratio": ratio, "low": low, "high": high, "pairs": sum(map(len, apart))}
    return {"title": title, "ways": ways, "compared": compared}


def by_truth(rows: Sequence[Row], prior: Prior) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.prior == prior.name:
            found.setdefault(row.truth, []).append(row)
    return found


def summary(prior: Prior, truths: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    mean, error = over_truths([[row.log_gain for row in each] for each in truths.values()])
    rows = [row for each in truths.values() for row in each]
    tested = [row for row in rows if row.foretold is not None]
    return {
        "prior": asdict(prior),
        "time_that_stands": math.exp(-mean),
        "error": math.exp(-mean) * error,
        "foretold": float(np.mean([row.foretold for row in tested])),
        "confirmed": float(np.mean([row.confirmed for row in tested])),
        "nothing": 1 - len(tested) / len(rows),
        "wrong": float(np.mean([row.wrong for row in rows])),
    }


def lines(found: dict[str, Any]) -> list[str]:
    text = [f"## {found['title']}", "", HEADER, "|---|---|---|---|---|---|"]
    for way in found["ways"]:
        text.append(
            f"| {way['prior']['name']} | {way['time_that_stands']:.3f}, {way['error']:.3f} | {way['foretold']:.0%} "
            f"| {way['confirmed']:.0%} | {way['nothing']:.0%} | {way['wrong']:.1%} |"
        )
    c = found["compared"]
    said = f"With {COMPARED[1].name} {c['ratio']:.3f} [{c['low']:.3f}, {c['high']:.3f}] times as much time stands ({c['pairs']} pairs)."
    return [*text, "", said, ""]


def todo(searches: int) -> list[tuple[str, int]]:
    """More of those that are like what users search."""
    of_each: Sequence[tuple[Sequence[Made], int]] = ((RETUNED, 2 * searches), (TRUTHS, searches))
    return [(made.name, seed) for truths, n in of_each for made in truths for seed in range(n)]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=10, help="of each rough truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    found = of_each_search(searched, todo(options.searches), options.jobs)
    rows = [row for each in found for row in each]
    parts = []
    for title, truths, report in PARTS:
        names = {made.name for made in truths if made.report == report}
        parts.append(part(title, [row for row in rows if row.truth in names]))
    parts.append(part("All", rows))
    document = {"budget_s": BUDGET_S, "searches": options.searches, "parts": parts}
    rows_there = [asdict(row) for row in rows]
    text = [line for each in parts for line in lines(each)]
    publish(options.output, "simulated", document | {"rows": rows_there}, text)


if __name__ == "__main__":
    main()
