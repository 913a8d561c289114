"""How often is "no worse" said wrongly where a configuration has rare bad seeds? A minute on a CPU:

    python -m benchmarks.verdict.rare_seeds

The default's MQL has a mean of 1. What is held against it is worse by exactly the margin, by a share of bad seeds, whose MQL
is higher by a jump, and by a level shift for the rest. Both have the noise of a seed. The test claims "no worse" then in
at most 5 % of cases, if it holds what it promises.
"""

from __future__ import annotations

import numpy as np

from tuner.verdict.stats.noninferiority import no_worse

MARGIN, NOISE, DRAWS = 0.01, 0.01, 4000
CASES = ((0.0, 0.0), (0.02, 0.1), (0.02, 0.2), (0.01, 0.25), (0.05, 0.1))
"""Shares of bad seeds, and by how much these are worse, relative."""
SEEDS = (30, 90)


def wrongly_claimed(share: float, jump: float, seeds: int, *, draws: int = DRAWS) -> float:
    """The share of draws in which it is claimed, of a mean that is worse by exactly the margin."""
    drawn = np.random.default_rng([round(1000 * share), round(1000 * jump), seeds])
    level = 1 + MARGIN - share * jump
    claimed = 0
    for _ in range(draws):
        bad = drawn.random(seeds) < share
        worse = level + jump * bad + drawn.normal(0.0, NOISE, seeds)
        usual = 1 + drawn.normal(0.0, NOISE, seeds)
        found = no_worse(dict(enumerate(worse)), dict(enumerate(usual)), margin=MARGIN)
        claimed += found is not None and found.claimed
    return claimed / draws


def main() -> None:
    print("| bad seeds | worse by | " + " | ".join(f"wrong on {n} seeds" for n in SEEDS) + " |")
    print("|---|---|" + "---|" * len(SEEDS))
    for share, jump in CASES:
        wrong = (f"{wrongly_claimed(share, jump, n):.1%}" for n in SEEDS)
        print(f"| {share:.0%} | {jump:.0%} | " + " | ".join(wrong) + " |")


if __name__ == "__main__":
    main()
