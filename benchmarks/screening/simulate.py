"""Searches of few, long trainings, simulated on recorded ones: what is left of the default's time for eight of its trainings.

    python benchmarks/screening/simulate.py [--replicates 4000] [--output OUT/simulated]

A search has the default and `--units` (8) times its time, everything included: a stage that looks at configurations on a part of
the windows, within a share of the default's time each; full trainings of the best of them; then the default and the choice on
`seeds` fresh seeds each. The choice stands if its mean MQL is within `--margin` (3 %) of the default's by a one-sided test at 5 %
(Welch), which prints the margin that these seeds show; else the default stays, and the factor is 1.

Looks are the recorded trainings (h200.jsonl.xz), one for each configuration and share; which are looked at is drawn: rates above
the default's in equal steps from an offset, and places all over the space. Full trainings and confirmations are drawn from the
truth fitted to what is recorded of `original` elsewhere (benchmarks/verdict/truths.py), with its noise between seeds.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, write
from benchmarks.verdict.truths import NOISE_LOG_EPOCHS, Truth, noise_of_mql, truth

RECORDED = Path(__file__).parent / "h200.jsonl.xz"
TRUTH = "forest, original, retuned"
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Plan:
    """A search: what it looks at and how; then how many full trainings, and seeds."""

    step: int
    """Each so-many-th window is looked at."""
    cap: float
    """Of the default's whole time, for a look."""
    rates: int
    others: int
    full: int
    seeds: int

    @property
    def name(self) -> str:
        part = "all" if self.step == 1 else f"1/{self.step}"
        looks = f"{self.rates} rates" + (f" and {self.others} others" if self.others else "")
        return f"{looks} on {part}, at most {self.cap:g} each; {self.full} full; {self.seeds} seeds"


PLANS = (
    Plan(1, 9.0, 5, 0, 0, 1),
    Plan(1, 0.6, 6, 0, 0, 3),
    Plan(1, 0.6, 4, 2, 0, 3),
    Plan(1, 0.6, 4, 0, 2, 3),
    Plan(1, 0.45, 5, 0, 2, 3),
    Plan(2, 0.4, 6, 0, 1, 3),
    Plan(2, 0.4, 6, 0, 2, 3),
    Plan(4, 0.3, 6, 0, 2, 3),
    Plan(4, 0.3, 6, 4, 2, 3),
    Plan(8, 0.2, 6, 0, 2, 3),
    Plan(8, 0.2, 6, 4, 2, 3),
    Plan(2, 0.4, 5, 0, 1, 4),
)
"""The first is what one does by hand: five rates once each to their end, and the best is taken."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to, in the default's times."""

    factor: float
    cost: float
    moved: bool
    """The choice is not the default."""
    shown: float
    """The margin that its seeds show."""
    true: float
    """By how much the choice's true mean MQL is above the default's, as a share."""


class Job:
    """The recorded looks, and the truth."""

    def __init__(self) -> None:
        lines = lzma.decompress(RECORDED.read_bytes()).decode().splitlines()
        self.head, *rows = [json.loads(each) for each in lines]
        self.looks: dict[tuple[int, int], dict[str, Any]] = {}
        for row in rows:
            self.looks.setdefault((row["number"], row["step"]), row)
        self.truth: Truth = truth(TRUTH)
        self.values = {number: row["values"] for (number, _), row in self.looks.items()}
        default = self.values[0]
        self.true_mql, self.true_s = {}, {}
        for number, values in [*self.values.items()]:
            try:
                where = self.truth.where(values)
            except ValueError:  # the truth's space has no such size
                del self.values[number]
                continue
            self.true_mql[number] = float(self.truth.mql(where)[0])
            self.true_s[number] = float(self.truth.seconds(where)[0])
        same = {k: v for k, v in default.items() if k != "learning_rate"}
        self.rates, self.others = [], []
        for number, values in self.values.items():
            if number == 0 or any((number, step) not in self.looks for step in (8, 4, 2, 1)):
                continue
            on_ladder = {k: v for k, v in values.items() if k != "learning_rate"} == same
            if on_ladder and values["learning_rate"] > 1.2 * default["learning_rate"]:
                self.rates.append(number)
            elif not on_ladder:
                self.others.append(number)
        self.unit_s = self.looks[0, 1]["wall_clock_s"]
        full = [row["wall_clock_s"] for row in rows if row["number"] == 0 and row["step"] == 1]
        self.unit_s = float(np.median(full))

    def trained(self, number: int, random: np.random.Generator) -> tuple[float, float]:
        """A full training: MQL, and its time over the default's."""
        spread = float(np.exp(NOISE_LOG_EPOCHS * random.standard_normal()))
        epochs = np.exp(self.truth.log_epochs(self.truth.where(self.values[number]))) * spread
        mql = self.true_mql[number] + float(noise_of_mql(epochs, random, self.truth.noise)[0])
        return mql, self.true_s[number] * spread / self.true_s[0]

    def run(self, plan: Plan, margin: float, random: np.random.Generator) -> Found:
        """One search."""
        offset = random.uniform()
        places = (np.arange(plan.rates) + offset) * len(self.rates) / plan.rates
        looked = [self.rates[int(each)] for each in places]
        looked += [int(each) for each in random.choice(self.others, plan.others, replace=False)]
        cost, seen = 0.0, []
        for number in looked:
            row = self.looks[number, plan.step]
            took = row["total_s"] / self.unit_s
            cost += min(took, plan.cap)
            if row["stopped_by"] == "converged" and took <= plan.cap:
                seen.append((row["test_mql"], number))
        if not seen:
            return Found(1.0, cost, moved=False, shown=0.0, true=0.0)
        best = [number for _, number in sorted(seen)]
        if plan.full:
            tried = []
            for number in best[: plan.full]:
                mql, took = self.trained(number, random)
                cost += took
                tried.append((mql, number))
            best = [number for _, number in sorted(tried)]
        choice = best[0]
        true = self.true_mql[choice] / self.true_mql[0] - 1
        factor = self.true_s[choice] / self.true_s[0]
        if plan.seeds == 1:  # by hand: nothing is tested
            return Found(factor, cost, moved=True, shown=margin, true=true)
        ours: list[float] = []
        its: list[float] = []
        for _ in range(plan.seeds):
            for number, kept in ((choice, ours), (0, its)):
                mql, took = self.trained(number, random)
                cost += took
                kept.append(mql)
        shown = upper_end(np.array(ours), np.array(its))
        if shown > margin:
            return Found(1.0, cost, moved=False, shown=shown, true=true)
        return Found(factor, cost, moved=True, shown=shown, true=true)


def upper_end(ours: np.ndarray[Any, Any], its: np.ndarray[Any, Any]) -> float:
    """Of how much ours are above its, as a share of its mean: one-sided, 95 %."""
    test = stats.ttest_ind(ours, its, equal_var=False)
    high = test.confidence_interval(2 * LEVEL - 1).high
    return float(high / its.mean())


def row_of(plan: Plan, found: list[Found]) -> dict[str, Any]:
    moved = [each for each in found if each.moved]
    logs = np.log([each.factor for each in found])
    return {
        "plan": plan.name,
        "cost": float(np.mean([each.cost for each in found])),
        "most_cost": float(np.quantile([each.cost for each in found], 0.95)),
        "moved": len(moved) / len(found),
        "within": sum(each.true <= each.shown for each in moved) / max(1, len(moved)),
        "shown": float(np.median([each.shown for each in moved])) if moved else 0.0,
        "true": float(np.median([each.true for each in moved])) if moved else 0.0,
        "factor": float(np.exp(logs.mean())),
        "error": float(logs.std() / np.sqrt(len(logs))),
    }


def bias(job: Job) -> list[dict[str, Any]]:
    """What a look on a part says of the whole: of those that converge in both."""
    found = []
    for step in (8, 4, 2):
        part, whole = [], []
        for number in job.values:
            one, all_of_it = job.looks.get((number, step)), job.looks.get((number, 1))
            if not number or one is None or all_of_it is None:
                continue
            if one["stopped_by"] == all_of_it["stopped_by"] == "converged":
                part.append((np.log(one["wall_clock_s"]), one["test_mql"]))
                whole.append((np.log(all_of_it["wall_clock_s"]), all_of_it["test_mql"]))
        times, scores = np.array(part).T
        true_times, true_scores = np.array(whole).T
        found.append(
            {
                "step": step,
                "both": len(part),
                "time": float(np.exp(np.median(times - true_times))),
                "time_rank": float(stats.spearmanr(times, true_times).statistic),
                "mql": float(np.median(scores / true_scores) - 1),
                "mql_rank": float(stats.spearmanr(scores, true_scores).statistic),
            }
        )
    return found


def table(found: dict[str, Any]) -> list[str]:
    lines = [
        "| looks | cost, mean (95 % below) | not the default | truly within what is shown | shown, median | truly, median | time left |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["plans"]:
        lines.append(
            f"| {row['plan']} | {row['cost']:.1f} ({row['most_cost']:.1f}) | {row['moved']:.0%} | {row['within']:.1%} | "
            f"{row['shown']:.1%} | {row['true']:+.2%} | {row['factor']:.3f} ± {row['error'] * row['factor']:.3f} |"
        )
    lines += [
        "",
        "| part of the windows | converge in both | time over the whole's | rank correlation | MQL above the whole's | rank correlation |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["bias"]:
        lines.append(
            f"| 1/{row['step']} | {row['both']} | {row['time']:.2f} | {row['time_rank']:.2f} | {row['mql']:+.1%} | {row['mql_rank']:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=63)
    parser.add_argument("--output", type=Path, required=True, help="without a suffix")
    options = parser.parse_args()
    job = Job()
    found: dict[str, Any] = {"configurations": len(job.values) - 1, "plans": []}
    for plan in PLANS:
        random = np.random.default_rng(options.seed)
        searches = [job.run(plan, options.margin, random) for _ in range(options.replicates)]
        found["plans"].append(row_of(plan, searches))
    found["bias"] = bias(job)
    found |= circumstances("CPU")
    write(options.output, found, [*heading(found), *table(found)])


if __name__ == "__main__":
    main()
