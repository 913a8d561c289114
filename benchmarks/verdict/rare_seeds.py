"""How often is "no worse" said wrongly, of what is worse by exactly the margin? Some minutes on a CPU:

    python -m benchmarks.verdict.rare_seeds

The default's MQL has a mean of 1. What is held against it is worse by exactly the margin: by noise of several shapes, or
by a share of bad seeds, whose MQL is higher by a jump, and by a level shift for the rest. Both have as many, on shared
seeds or apart. One look has the whole level; of three looks, after 30, 60 and 90 seeds,
each has its share of a part of it, for there are three questions: within the margin, at no loss, and at another's
quality. Asked all at once, each of what is worse by exactly its margin, any claim is wrong. All hold if they err in 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.verdict.looked import P, looked, looks
from tuner.spec.margin import LEVEL, NO_LOSS, Question
from tuner.verdict.stats.noninferiority import p_apart, p_below

Array = np.ndarray[Any, Any]

MARGIN, NOISE, DRAWS = 0.01, 0.01, 20_000
CASES = ((0.0, 0.0), (0.02, 0.1), (0.02, 0.2), (0.01, 0.25), (0.05, 0.1))
"""Shares of bad seeds, and by how much these are worse, relative."""
SEEDS = 90
DESIGN = looks(SEEDS)
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


Rates = dict[str, float]


def wrongly_claimed(
    share: float, jump: float, *, shape: str = "normal", draws: int = DRAWS
) -> Rates:
    """In which share of draws each is claimed, and any of the last three."""
    parts = [round(1000 * share), round(1000 * jump), SEEDS, list(SHAPES).index(shape)]
    random, noise = np.random.default_rng(parts), SHAPES[shape]
    failed = FAILED * ("fail" in shape)

    def worse(by: float) -> Array:
        """NaN where a run failed."""
        bad = random.random(SEEDS) < share
        mqls = 1 + by - share * jump + jump * bad + NOISE * noise(random, SEEDS)
        return np.where(random.random(SEEDS) < failed, np.nan, mqls)

    def shared(mine: Array, margin: float) -> P:
        def p_after(blocks: int) -> float:
            off = mine[:blocks] - (1 + margin) * usual[:blocks]
            return p_below(off[~np.isnan(off)])

        return p_after

    def apart(mine: Array) -> P:
        def p_after(blocks: int) -> float:
            one, other = mine[:blocks], others[:blocks]
            return p_apart(one[~np.isnan(one)].tolist(), other.tolist(), margin=MARGIN)

        return p_after

    claimed: dict[str, int] = dict.fromkeys(HEADS, 0)
    for _ in range(draws):
        usual = 1 + NOISE * noise(random, SEEDS)
        usual = np.where(random.random(SEEDS) < failed, np.nan, usual)
        others = 1 + NOISE * noise(random, SEEDS)
        p_whole = shared(worse(MARGIN), MARGIN)
        one = p_whole(SEEDS) < LEVEL
        asked = {
            Question.MARGIN: p_whole,
            Question.NO_LOSS: shared(worse(NO_LOSS), NO_LOSS),
            Question.ANOTHERS: apart(worse(MARGIN)),
        }
        three = [looked(p, DESIGN, question).claimed for question, p in asked.items()]
        for head, is_claimed in zip(HEADS, (one, *three, any(three)), strict=True):
            claimed[head] += is_claimed
    return {head: count / draws for head, count in claimed.items()}


HEADS = ("one look", "three looks", "at no loss", "at another's quality", "any of the three")


def main() -> None:
    print("| seeds | " + " | ".join(HEADS) + " |")
    print("|---|" + "---|" * len(HEADS))
    shapes = [(shape, 0.0, 0.0, shape) for shape in SHAPES]
    cases = [(f"{s:.0%} worse by {j:.0%}", s, j, "normal") for s, j in CASES if s]
    for name, share, jump, shape in (*shapes, *cases):
        wrong = wrongly_claimed(share, jump, shape=shape)
        print(
            f"| {name} | " + " | ".join(f"{each:.1%}" for each in wrong.values()) + " |", flush=True
        )


if __name__ == "__main__":
    main()
