"""Searches that stop by themselves, beside the same searches that go on.

    python benchmarks/verdict/until.py --searches 2 --jobs 2 --output benchmarks/verdict/until

Searches by `kg` of 480 GPU seconds each, on the truths for tuning. After 12 trials, and whenever there are
10 % more and at least 10, it is worked out what more runs of what was tried could still save. Where
that is at most 30 %, 20 % or 10 % for the first time, the search would stop: what it recommends then
and what it recommends at the end are each confirmed 200 times, in steps, on 60 seeds. Where nothing is
claimed, the default's time stands. Beside them, what stands after 120 s and 240 s of the same searches.
The product asks for more trials before it stops (`LEAST_TRIALS`): what was said with fewer stands apart.
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
from benchmarks.verdict.over_truths import over_truths
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.steps_tested import steps_tested
from benchmarks.verdict.truths import TRUTHS
from tuner.spec.confirming import CONFIRMATION_SEEDS, LEAST_RUNS
from tuner.verdict.left_to_gain import left_to_gain
from tuner.verdict.recommendation import recommend
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, RunsModel
from tuner.verdict.until import LEAST_MORE, LEAST_TRIALS, MORE_SHARE

BUDGET_S = 480.0
END = f"{BUDGET_S:.0f} s"
SHARES = (0.3, 0.2, 0.1)
FIXED_S = (120.0, 240.0)
A_TRIAL_S = 1e-9
"""Left of the budget: one more trial."""
HEADER = (
    "| search | stopped by itself | GPU seconds, mean (least to most) | time that stands, "
    "standard error | going on to 480 s saved, of those that stopped "
    f"| more than said, with fewer than {LEAST_TRIALS} trials | with as many or more |"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Where a search stood with `until`: where it stopped, or at its end."""

    truth: str
    seed: int
    way: str
    stopped: bool
    """By itself."""
    seconds: float
    trainings: int
    configurations: int
    at_most: float | None
    """What was said to be left; None where the default stands."""
    found: Judged


def stops(name: str, seed: int) -> list[Stop]:
    """One search, with each of `SHARES` and at its end."""
    gpu = Gpu(name, seed, BUDGET_S)
    searched = Searched(gpu, "kg")
    found: dict[float, Stop] = {}
    fixed: list[Stop] = []
    look = LEAST_CONFIGURATIONS
    while gpu.spent_s < BUDGET_S:
        gpu.budget_s = gpu.spent_s + A_TRIAL_S
        searched.spend()
        if len(fixed) < len(FIXED_S) and gpu.spent_s >= FIXED_S[len(fixed)]:
            fixed.append(stop(gpu, f"{FIXED_S[len(fixed)]:.0f} s", stopped=False))
        if len(gpu.trained) < look or len(gpu.runs()) < LEAST_CONFIGURATIONS:
            continue
        look = len(gpu.trained) + max(LEAST_MORE, math.ceil(MORE_SHARE * len(gpu.trained)))
        open_ones = [share for share in SHARES if share not in found]
        left = said(gpu) if open_ones else None
        for share in open_ones:
            if left is not None and left <= share:
                found[share] = stop(gpu, f"until {share:.0%}", stopped=True)
    rows = [found.get(share) or stop(gpu, f"until {share:.0%}", stopped=False) for share in SHARES]
    return [*rows, *fixed, stop(gpu, END, stopped=False)]


def said(gpu: Gpu) -> float | None:
    """What is left to gain at most; None where nothing can be said, or the default stands."""
    model = _model(gpu)
    chosen = recommend(model, least_runs=LEAST_RUNS).chosen if model else None
    return left_to_gain(model, chosen.trial).at_most if model and chosen else None


def stop(gpu: Gpu, way: str, *, stopped: bool) -> Stop:
    model, runs = _model(gpu), gpu.runs()
    assert model is not None, "there were trials enough"
    return Stop(
        truth=gpu.name,
        seed=gpu.seed,
        way=way,
        stopped=stopped,
        seconds=gpu.spent_s,
        trainings=len(gpu.trained),
        configurations=len(model.trials),
        at_most=said(gpu),
        found=judged(gpu, steps_tested(model, runs), seeds=CONFIRMATION_SEEDS),
    )


def _model(gpu: Gpu) -> RunsModel | None:
    runs = gpu.runs()
    if len({run.trial for run in runs}) < LEAST_CONFIGURATIONS or not any(
        run.trial == 0 for run in runs
    ):
        return None
    return RunsModel(runs, 0)


def summary(rows: Sequence[Stop], ends: Sequence[Stop]) -> dict[str, Any]:
    """Of one way, beside the same searches at their end; truths count alike."""
    stands, error = _stands(rows)
    pairs = [(row, end) for row, end in zip(rows, ends, strict=True) if row.stopped]
    more = [end.found.log_gain - row.found.log_gain for row, end in pairs]
    over: dict[bool, list[bool]] = {False: [], True: []}
    for (row, _), m in zip(pairs, more, strict=True):
        over[row.trainings >= LEAST_TRIALS].append(1 - math.exp(-m) > (row.at_most or 0.0))
    seconds = [row.seconds for row in rows]
    return {
        "way": rows[0].way,
        "searches": len(rows),
        "stopped": len(pairs),
        "seconds": [float(np.mean(seconds)), min(seconds), max(seconds)],
        "trainings": float(np.median([row.trainings for row in rows])),
        "time_that_stands": stands,
        "error": error,
        "saved_after": 1 - math.exp(-float(np.mean(more))) if more else None,
        "more_than_said_before": [sum(over[False]), len(over[False])],
        "more_than_said": [sum(over[True]), len(over[True])],
    }


def _stands(rows: Sequence[Stop]) -> tuple[float, float]:
    truths = list(dict.fromkeys(row.truth for row in rows))
    gains = [[row.found.log_gain for row in rows if row.truth == name] for name in truths]
    mean, error = over_truths(gains)
    return math.exp(-mean), math.exp(-mean) * error


def lines(document: dict[str, Any]) -> list[str]:
    text = [
        f"{document['searches']} searches by `kg` of each truth. 1 is the default's time.",
        "",
        HEADER,
        "|---|---|---|---|---|---|---|",
    ]
    for s in document["ways"]:
        mean, least, most = s["seconds"]
        after = "" if s["saved_after"] is None else f"{s['saved_after']:.1%}"
        sides = [s["more_than_said_before"], s["more_than_said"]]
        over = " | ".join(f"{more} of {stopped}" if stopped else "" for more, stopped in sides)
        text.append(
            f"| {s['way']} | {s['stopped']} of {s['searches']} | {mean:.0f} ({least:.0f} to "
            f"{most:.0f}) | {s['time_that_stands']:.3f}, {s['error']:.3f} "
            f"| {after} | {over} |"
        )
    return text


def _seconds(found: list[Stop]) -> str:
    return f": {', '.join(f'{row.seconds:.0f}' for row in found)} s"


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=2, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in TRUTHS if not made.report]
    todo = [(name, seed) for seed in range(options.searches) for name in names]
    rows: list[Stop] = []
    for each in of_each_search(stops, todo, options.jobs, _seconds):
        rows += each
    ends = [row for row in rows if row.way == END]
    ways = list(dict.fromkeys(row.way for row in rows))
    document = {
        "searches": options.searches,
        "ways": [summary([row for row in rows if row.way == way], ends) for way in ways],
        "stops": [asdict(row) for row in rows],
    }
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
