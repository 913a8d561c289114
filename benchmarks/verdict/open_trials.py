"""Does a search suffer from asking for the next trial while one trains? Judged by what its user gets.

    python benchmarks/verdict/searches.py --searches 20 --tuning 0 --jobs 2
    python benchmarks/verdict/searches.py --searches 20 --tuning 0 --jobs 2 --at-once 2 --cache benchmarks/verdict/searches-2.jsonl
    python benchmarks/verdict/open_trials.py --jobs 2 --output OUT/open-trials

Each truth for reporting is searched by the same seeds, told each result before the next trial is asked for, and told it
only after (`--at-once 2`); both are retuned as users are (verification, recommendation). What is compared, seed by seed, is
the true time of the recommendation as a share of the default's, in logarithms, with the 95 % interval of the mean
difference; and the same of what is recommended at the registered level.
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.retunes import Retune, Verification, retune
from benchmarks.verdict.searches import CACHE, read
from benchmarks.verdict.simulation_files import options_of, publish
from benchmarks.verdict.truths import TRUTHS
from tuner.verdict.recommendation import CHANCE, ROUNDS, VERIFIED, VERIFIED_SEEDS

HOW = Verification(ROUNDS, VERIFIED, VERIFIED_SEEDS)
SECOND = CACHE.with_name("searches-2.jsonl")


def logarithms(found: dict[str, Any]) -> tuple[str, int, float, float]:
    """Truth, seed, and the logarithms of what is recommended, as a share of the default's time."""
    made = retune(found, HOW, (CHANCE,))
    return made.truth, made.seed, _share(made, made.answers), _share(made, made.at_level)


def _share(made: Retune, answers: dict[float, Any]) -> float:
    return math.log(answers[CHANCE].seconds / made.default.seconds)


def compared(one: dict[Any, Any], two: dict[Any, Any]) -> dict[str, Any]:
    """Of all searches that both have."""
    both = sorted(one.keys() & two.keys())
    found: dict[str, Any] = {"searches": len(both)}
    for at, name in enumerate(("recommended", "at the level")):
        first, second = (np.array([each[key][at] for key in both]) for each in (one, two))
        apart = second - first
        error = float(apart.std(ddof=1)) / math.sqrt(len(both))
        found[name] = {
            "one": math.exp(float(first.mean())),
            "two": math.exp(float(second.mean())),
            "ratio": math.exp(float(apart.mean())),
            "low": math.exp(float(apart.mean()) - 1.96 * error),
            "high": math.exp(float(apart.mean()) + 1.96 * error),
        }
    return found


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--one", type=Path, default=CACHE)
    parser.add_argument("--two", type=Path, default=SECOND)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    reported = {made.name for made in TRUTHS if made.report}
    kinds = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for cache in (options.one, options.two):
            searches = [each for each in read(cache) if each["truth"] in reported]
            done = pool.map(logarithms, searches, chunksize=4)
            kinds.append({(name, seed): shares for name, seed, *shares in done})
    found = compared(*kinds)
    lines = [
        f"{found['searches']} searches of 200 trials each way, verified in {HOW.name}.",
        "",
        "| true time, the default's = 1, geometric means | told first | told after | ratio | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for name in ("recommended", "at the level"):
        f = found[name]
        lines.append(
            f"| {name} | {f['one']:.3f} | {f['two']:.3f} | {f['ratio']:.3f} | {f['low']:.3f} to {f['high']:.3f} |"
        )
    publish(options.output, "no device", found, lines)


if __name__ == "__main__":
    main()
