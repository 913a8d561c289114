"""The whole protocol on truths that are known: does it keep its word, and what does a claim cost?

    python benchmarks/verdict/searches.py --searches 60 --jobs 32
    python benchmarks/verdict/protocol.py --tune --jobs 32 --output OUT/protocol

The first command simulates the searches and keeps them in a file that is not committed. The second
takes each as a retune (verification, recommendation, confirmation), deals retunes into sets as if they
were searches of variants, and does the same with the protocol before (knees of fronts on ten seeds).
Settings were found on half of the truths (`--tune` shows it); everything else is of the other half.
Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one retune a core

import numpy as np

from benchmarks.verdict import deals, knees
from benchmarks.verdict.confirmations import Confirmed, answered, confirmed, wrong_at_the_margin
from benchmarks.verdict.protocol_table import lines
from benchmarks.verdict.retunes import Retune, Verification, retune
from benchmarks.verdict.searches import CACHE, SAMPLER, read
from benchmarks.verdict.simulation_files import options_of, publish
from benchmarks.verdict.truths import TRUTHS
from tuner.verdict.recommendation import (
    CHANCE,
    MARGIN,
    ROUNDS,
    VERIFIED,
    VERIFIED_SEEDS,
)
from tuner.verdict.stats.searches import RETUNE_LEVEL

T = TypeVar("T")
SETTING = Verification(ROUNDS, VERIFIED, VERIFIED_SEEDS)
GRID = (
    Verification(0, 0, 0),
    Verification(1, 5, 10),
    Verification(1, 12, 4),
    Verification(3, 4, 4),
    Verification(3, 6, 4),
    Verification(3, 6, 4, "fastest"),
    Verification(3, 6, 6),
    Verification(5, 6, 4),
)
CHANCES = (0.5, 0.8, 0.9, 0.95, 0.975)
SETS = (1, 3, 4, 5, 6, 8, 10, 12, 16, 20)
RATIO = 1.5
TIMES_OF_A_KNEE = 5


def by_truth(found: Sequence[dict[str, Any]], each: Sequence[T]) -> dict[str, list[T]]:
    """What became of each search, by its truth."""
    sorted_: dict[str, list[T]] = {}
    for one, what in zip(found, each, strict=True):
        sorted_.setdefault(one["truth"], []).append(what)
    return sorted_


def recommended(retunes: Mapping[str, Sequence[Retune]], chance: float) -> dict[str, Any]:
    """What is recommended: how often truly within the margin, and how fast."""
    named = {
        name: [(r, r.answers[chance]) for r in mine if not r.answers[chance].default]
        for name, mine in retunes.items()
    }
    within = {
        name: [answer.mql <= (1 + MARGIN) * r.default.mql for r, answer in mine]
        for name, mine in named.items()
    }
    ratios = {
        name: _mean_ratio([(r.answers[chance].seconds, r.default.seconds) for r in mine])
        for name, mine in retunes.items()
    }
    return {
        "chance": chance,
        "something": sum(map(len, named.values())) / sum(map(len, retunes.values())),
        "within": deals.shared(within).as_dict(),
        "times": _mean_ratio(
            [(r.answers[chance].seconds, r.default.seconds) for r in _flat(retunes)]
        ),
        "times_by_truth": ratios,
        "worse_by": float(
            np.mean([a.mql / r.default.mql - 1 for mine in named.values() for r, a in mine])
        ),
        "at_level": _at_level(retunes, chance),
        "verification_s": float(np.mean([r.verification_s for r in _flat(retunes)])),
    }


def _at_level(retunes: Mapping[str, Sequence[Retune]], chance: float) -> dict[str, Any]:
    answers = {name: [(r, r.at_level[chance]) for r in mine] for name, mine in retunes.items()}
    within = {
        name: [a.mql <= r.level or a.default for r, a in mine] for name, mine in answers.items()
    }
    times = {name: [a.seconds for _, a in mine] for name, mine in answers.items()}
    return {"within": deals.shared(within).as_dict(), "spread": deals.spread(times)}


def confirmations(retunes: Mapping[str, Sequence[Retune]], pool: Pool) -> dict[str, Any]:
    """What confirmation says of the recommendations, and of ones planted exactly at the margin."""
    named = [(r, r.answers[CHANCE]) for r in _flat(retunes) if not r.answers[CHANCE].default]
    right = {name: [] for name in retunes}  # type: dict[str, list[bool]]
    truly: list[tuple[bool, bool]] = []
    spent = []
    for (r, answer), found in zip(named, pool(_confirmed, named), strict=True):
        within = answer.mql <= (1 + MARGIN) * r.default.mql
        right[r.truth].append(found.claimed)
        truly.append((within, found.claimed))
        spent.append(found.spent_s)
    wrong = {name: [] for name in retunes}  # type: dict[str, list[bool]]
    for (r, _), errors in zip(named, pool(_wrong, named), strict=True):
        wrong[r.truth] += errors
    claimed = [within for within, claimed in truly if claimed]
    # Where nothing is claimed the default stays.
    valid = [
        (a.seconds if claimed else r.default.seconds, r.default.seconds)
        for (r, a), (_, claimed) in zip(named, truly, strict=True)
    ] + [(1.0, 1.0)] * (len(_flat(retunes)) - len(named))
    return {
        "claimed": deals.shared(right).as_dict(),
        "claimed_and_wrong": len(claimed) - sum(claimed),
        "wrong_at_the_margin": deals.shared(wrong).as_dict(),
        "times_after": _mean_ratio(valid),
        "confirmation_s": float(np.mean(spent)),
    }


def _confirmed(pair: tuple[Retune, Any]) -> Confirmed:
    return confirmed(*pair)


def _wrong(pair: tuple[Retune, Any]) -> list[bool]:
    return wrong_at_the_margin(*pair)


def between(
    retunes: Mapping[str, Sequence[Retune]], options: argparse.Namespace, pool: Pool
) -> dict[str, Any]:
    """Sets of searches against each other: nothing planted, a ratio planted, another retune."""
    times: dict[str, list[float]] = {name: [] for name in retunes}
    within: dict[str, list[bool]] = {name: [] for name in retunes}
    spent, defaults = [], 0
    for r, found in zip(_flat(retunes), pool(answered, _flat(retunes)), strict=True):
        times[r.truth].append(found.seconds)
        within[r.truth].append(found.truly_within)
        defaults += found.default
        spent.append(found.spent_s)
    cost = float(np.mean([r.search_s + r.verification_s for r in _flat(retunes)]))
    rows = []
    for searches in SETS:
        agrees, width = deals.agreement(times, searches, options.deals)
        differs, _ = deals.agreement(times, searches, options.deals, ratio=RATIO)
        rows.append(
            {
                "searches": searches,
                "nothing": deals.claims(times, searches, options.deals).as_dict(),
                "family": deals.family_claims(times, searches, options.deals).as_dict(),
                "planted": deals.claims(times, searches, options.deals, ratio=RATIO).as_dict(),
                "agrees": agrees.as_dict(),
                "agrees_planted": differs.as_dict(),
                "width": width,
                "gpu_minutes": searches * (cost + float(np.mean(spent))) / 60,
            }
        )
    return {
        "level": RETUNE_LEVEL,
        "within": deals.shared(within).as_dict(),
        "defaults": defaults,
        "spread": deals.spread(times),
        "spread_by_truth": {name: deals.spread({name: mine}) for name, mine in times.items()},
        "sets": rows,
    }


def before(
    found: Mapping[str, Sequence[knees.Knee]], options: argparse.Namespace
) -> dict[str, Any]:
    """The protocol before, on the same searches."""
    within, nothing, planted, close, not_worse = {}, {}, {}, {}, {}
    for name, mine in found.items():
        random = np.random.default_rng(len(mine))
        within[name] = [k.mql <= (1 + MARGIN) * k.default_mql for k in mine]
        pairs = [random.permutation(len(mine))[:2] for _ in range(options.deals)]
        compared = [knees.between(mine[i], mine[j]) for i, j in pairs]
        nothing[name] = [c.seconds.claimed or c.mql.claimed for c in compared]
        longer = [knees.between(mine[i], mine[j], ratio=RATIO) for i, j in pairs]
        planted[name] = [
            c.seconds.claimed and c.seconds.estimate is not None and c.seconds.estimate.estimate > 1
            for c in longer
        ]
        at = [c for k in mine for c in knees.at_the_margin(k, TIMES_OF_A_KNEE)]
        close[name] = [c.mql.within_margin for c in at]
        not_worse[name] = [not c.mql.claimed for c in at]
    flat = _flat(found)
    return {
        "within": deals.shared(within).as_dict(),
        "times": _mean_ratio([(k.seconds, k.default_seconds) for k in flat]),
        "worse_by": float(np.mean([k.mql / k.default_mql - 1 for k in flat])),
        "nothing": deals.shared(nothing).as_dict(),
        "planted": deals.shared(planted).as_dict(),
        "surely_close_at_the_margin": deals.shared(close).as_dict(),
        "no_difference_at_the_margin": deals.shared(not_worse).as_dict(),
        "gpu_minutes": float(np.mean([k.search_s + k.verification_s for k in flat])) / 60,
    }


def tuning(found: Sequence[dict[str, Any]], pool: Pool) -> list[dict[str, Any]]:
    """Every setting of the grid on the truths for tuning."""
    rows = []
    for how in GRID:
        retunes = by_truth(found, pool(functools.partial(retune, how=how, chances=CHANCES), found))
        for chance in CHANCES:
            rows.append({"verification": how.name} | recommended(retunes, chance))
        print(f"tuned {how.name}", file=sys.stderr, flush=True)
    return rows


Pool = Callable[[Callable[..., Any], Sequence[Any]], list[Any]]


def _flat(found: Mapping[str, Sequence[T]]) -> list[T]:
    return [each for mine in found.values() for each in mine]


def _mean_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.exp(np.mean([math.log(a / b) for a, b in pairs])))


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--deals", type=int, default=150, help="of each truth")
    parser.add_argument("--searches", type=int, default=1000, help="of each truth, at most")
    parser.add_argument("--tune", action="store_true", help="show what settings do, too")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    all_ = sorted(
        (one for one in read(options.cache) if one["seed"] < options.searches),
        key=lambda one: (one["truth"], one["seed"]),
    )
    for_report = {made.name for made in TRUTHS if made.report}
    report = [one for one in all_ if one["truth"] in for_report]
    rest = [one for one in all_ if one["truth"] not in for_report]
    with ProcessPoolExecutor(options.jobs) as executor:

        def pool(what: Callable[..., Any], each: Sequence[Any]) -> list[Any]:
            return list(executor.map(what, each, chunksize=1))

        tuned = tuning(rest, pool) if options.tune else []
        one = functools.partial(retune, how=SETTING, chances=CHANCES)
        retunes = by_truth(report, pool(one, report))
        print("retuned", file=sys.stderr, flush=True)
        document = {
            "searches": {name: len(mine) for name, mine in retunes.items()},
            "sampler": SAMPLER,
            "deals": options.deals,
            "verification": SETTING.name,
            "ratio": RATIO,
            "tuning": tuned,
            "recommended": recommended(retunes, CHANCE),
            "confirmed": confirmations(retunes, pool),
            "between": between(retunes, options, pool),
            "before": before(by_truth(report, pool(knees.knee, report)), options),
        }
    publish(options.output, "simulated", document, lines(document))


if __name__ == "__main__":
    main()
