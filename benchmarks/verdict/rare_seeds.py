"""How often is "no worse" said wrongly, of what is worse by exactly the margin? Some minutes on a CPU:

    python -m benchmarks.verdict.rare_seeds

The default's MQL has a mean of 1. What is held against it is worse by exactly the margin: by noise of several shapes, or
by a share of bad seeds, whose MQL is higher by a jump, and by a level shift for the rest. On shared seeds both have as
many; apart the default has five times as many. The test claims "no worse" then in at most 5 % of cases, if it holds what
it promises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.spec.margin import LEVEL
from tuner.verdict.stats.noninferiority import no_worse, p_apart

Array = np.ndarray[Any, Any]

MARGIN, NOISE, DRAWS = 0.01, 0.01, 20_000
CASES = ((0.0, 0.0), (0.02, 0.1), (0.02, 0.2), (0.01, 0.25), (0.05, 0.1))
"""Shares of bad seeds, and by how much these are worse, relative."""
SEEDS = (30, 90)
APART = (90, 450)
FAILED = 0.1
_LOG = 0.5


def _lognormal(random: np.random.Generator, n: int) -> Array:
    mean, spread = math.exp(_LOG**2 / 2), math.exp(_LOG**2 / 2) * math.sqrt(math.expm1(_LOG**2))
    return (random.lognormal(0.0, _LOG, n) - mean) / spread


SHAPES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda random, n: random.standard_normal(n),
    "t, 3 df": lambda random, n: random.standard_t(3, n) / math.sqrt(3),
    "lognormal": _lognormal,
    "normal, 10 % fail": lambda random, n: random.standard_normal(n),
}
"""Of a mean of 0 and a standard deviation of 1."""


def wrongly_claimed(
    share: float,
    jump: float,
    seeds: int,
    *,
    of_default: int | None = None,
    shape: str = "normal",
    draws: int = DRAWS,
) -> float:
    """The share of draws in which it is claimed, of a mean that is worse by exactly the margin; on
    seeds that both have, or on `of_default` others.
    """
    parts = [
        round(1000 * share),
        round(1000 * jump),
        seeds,
        of_default or 0,
        list(SHAPES).index(shape),
    ]
    drawn, noise = np.random.default_rng(parts), SHAPES[shape]
    level = 1 + MARGIN - share * jump
    claimed = 0
    for _ in range(draws):
        bad = drawn.random(seeds) < share
        worse = level + jump * bad + NOISE * noise(drawn, seeds)
        usual = 1 + NOISE * noise(drawn, of_default or seeds)
        ran = [drawn.random(len(each)) >= FAILED * ("fail" in shape) for each in (worse, usual)]
        if of_default:
            mine, theirs = worse[ran[0]].tolist(), usual[ran[1]].tolist()
            claimed += p_apart(mine, theirs, margin=MARGIN) < LEVEL
            continue
        one, other = (
            {n: float(x) for n, x in enumerate(each) if there[n]}
            for each, there in zip((worse, usual), ran, strict=True)
        )
        found = no_worse(one, other, margin=MARGIN)
        claimed += found is not None and found.claimed
    return claimed / draws


def main() -> None:
    heads = [f"wrong on {n} shared seeds" for n in SEEDS]
    heads.append("wrong on {} and {} others".format(*APART))
    print("| seeds | " + " | ".join(heads) + " |")
    print("|---|" + "---|" * len(heads))
    shapes = [(shape, 0.0, 0.0, shape) for shape in SHAPES]
    cases = [(f"{s:.0%} worse by {j:.0%}", s, j, "normal") for s, j in CASES if s]
    for name, share, jump, shape in (*shapes, *cases):
        wrong = [wrongly_claimed(share, jump, n, shape=shape) for n in SEEDS]
        wrong.append(wrongly_claimed(share, jump, APART[0], of_default=APART[1], shape=shape))
        print(f"| {name} | " + " | ".join(f"{each:.1%}" for each in wrong) + " |", flush=True)


if __name__ == "__main__":
    main()
