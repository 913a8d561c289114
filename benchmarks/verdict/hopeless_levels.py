"""When a search gives up another study's quality: how often wrongly, and what that saves.

    python benchmarks/verdict/hopeless_levels.py --report --output OUT/hopeless-levels

Searches by `kg`, as in a retune, of truths of which the lowest MQL is known, held against qualities
so far beside it (`LEVELS`): with the rule, and without. A quality above 0 is truly reached by some
configuration. What the rule gives up is found for the search's own quality instead: by how much
more time that saves is told, too. `--report` takes the truths for reporting and made jobs that
nothing was chosen on. Searches are kept in a file that is not committed: the command may be stopped
and given again. Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: a suggestion is paid for by one thread

import numpy as np

from benchmarks.verdict.budgets import Gpu, judged
from benchmarks.verdict.made_jobs import KINDS
from benchmarks.verdict.others_contenders import spend
from benchmarks.verdict.others_optuna import Kg
from benchmarks.verdict.others_rules import steps
from benchmarks.verdict.others_table import interval
from benchmarks.verdict.simulation_files import kept, options_of, publish, searches_in
from benchmarks.verdict.truths import RETUNED, TRUTHS, truth
from tuner.search import next_run
from tuner.search.cube import Cube
from tuner.search.sampler import EncodedSampler
from tuner.spec.margin import CONFIRMATION_SEEDS, LEAST_RUNS
from tuner.spec.policy import CAP

LEVELS = (-0.03, -0.02, -0.01, 0.002, 0.005)
"""Over the lowest MQL there is within the cap's time."""
DRAWS = {False: (46, 47), True: (48, 49)}
"""Of made jobs, for tuning and for reporting."""
CACHE = Path(__file__).parent / "hopeless-levels-searches.jsonl"
Search = dict[str, Any]
Todo = tuple[str, float, int, float, float]
"""A truth's name, a level, a seed, GPU seconds, and the chance below which a level is given up."""
HEADER = (
    "| asked for, over the lowest | searches | given up at the end | turns given up | trainings until "
    "then | truly reached with the rule, without | time at its own quality, times that without, 90 % |"
)


class Held(Kg):
    """A search that is held against a quality; `turns` says of each of its runs for that, by how
    many trainings there were, whether it looked.
    """

    def __init__(self, gpu: Gpu, level: float) -> None:
        self._level, self.turns = level, []
        super().__init__(gpu)

    turns: list[tuple[int, bool]]

    def suggest(self) -> list[tuple[float, ...]]:
        found = super().suggest()
        decides = self._study.sampler._next_run  # type: ignore[attr-defined]  # noqa: SLF001
        if decides is not None and decides.for_anothers is not None:
            self.turns.append((len(self._gpu.trained), decides.for_anothers))
            decides.for_anothers = None
        return found

    def _sampler(self, budget: int | None) -> EncodedSampler:
        made = super()._sampler(budget)
        made.level = self._level
        return made


@functools.cache
def lowest(name: str) -> float:
    """The lowest MQL within the cap's time: of many places, and of more about the best of them."""
    job, random = truth(name), np.random.default_rng(5)
    cube, default = Cube(job.space), job.where(job.default)
    most_s = CAP * float(job.seconds(default)[0])

    def mql(where: Any) -> Any:
        return np.where(job.seconds(where) <= most_s, job.mql(where), math.inf)

    where = np.vstack([default, cube.snapped(random.random((3000, cube.dimensions)))])
    found = mql(where)
    for _ in range(25):
        best = np.argsort(found)[:8]
        where, found = where[best], found[best]
        base = where[random.integers(0, len(where), 160)]
        width = 10 ** random.uniform(-2.2, -0.5, (160, 1))
        moved = base + random.normal(0, 1, base.shape) * width * (random.random(base.shape) < 0.6)
        more = cube.snapped(moved)
        where, found = np.vstack([where, more]), np.concatenate([found, mql(more)])
    return float(found.min())


def searched(name: str, above: float, seed: int, budget_s: float, chance: float) -> Search:
    """One search, without the rule where the chance is 0."""
    next_run.LEAST_CHANCE = chance
    level, gpu = lowest(name) * (1 + above), Gpu(name, seed, budget_s)
    contender = Held(gpu, math.log(level))
    spend(gpu, contender, beside=True)
    most_s = CAP * math.exp(gpu.known(gpu.default).log_seconds)
    known = [gpu.known(place) for place, _ in gpu.trained]
    own = judged(gpu, steps(gpu, LEAST_RUNS), seeds=CONFIRMATION_SEEDS)
    return {
        "todo": [name, above, seed, budget_s, chance],
        "turns": contender.turns,
        "trainings": len(gpu.trained),
        "reached": any(k.mql <= level and math.exp(k.log_seconds) <= most_s for k in known),
        "log_gain": own.log_gain,
    }


def search_all(todo: Sequence[Todo], cache: Path) -> list[Search]:
    found = {tuple(one["todo"]): one for one in searches_in(cache)}
    missing = [one for one in todo if one not in found]
    for one in kept((searched(*each) for each in missing), cache):
        found[tuple(one["todo"])] = one
        print(*one["todo"], file=sys.stderr, flush=True)
    return [found[one] for one in todo]


def given_up(search: Search) -> int | None:
    """After so many trainings it looked no further; None where its last turn looked."""
    after = None
    for trainings, looked in search["turns"]:
        after = None if looked else trainings if after is None else after
    return after


def row(with_rule: Sequence[Search], without: Sequence[Search]) -> dict[str, Any]:
    """Of searches for one level, in the same order; truths count alike, and the interval is over
    them.
    """
    apart: dict[str, list[float]] = {}
    for one, other in zip(with_rule, without, strict=True):
        apart.setdefault(one["todo"][0], []).append(other["log_gain"] - one["log_gain"])
    turns = [looked for one in with_rule for _, looked in one["turns"]]
    until = [after for one in with_rule if (after := given_up(one)) is not None]
    return {
        "above": with_rule[0]["todo"][1],
        "searches": len(with_rule),
        "given_up": len(until) / len(with_rule),
        "turns_given_up": 1 - float(np.mean(turns)),
        "until": float(np.median(until)) if until else None,
        "trainings": float(np.mean([one["trainings"] for one in with_rule])),
        "reached": float(np.mean([one["reached"] for one in with_rule])),
        "reached_without": float(np.mean([one["reached"] for one in without])),
        "time": interval([float(np.mean(mine)) for mine in apart.values()]),
    }


def line(one: dict[str, Any]) -> str:
    until = "" if one["until"] is None else f"{one['until']:.0f} of {one['trainings']:.0f}"
    ratio, low, high = one["time"]
    return (
        f"| {100 * one['above']:+.1f} % | {one['searches']} | {one['given_up']:.1%} "
        f"| {one['turns_given_up']:.1%} | {until} | {one['reached']:.0%}, "
        f"{one['reached_without']:.0%} | {ratio:.3f} [{low:.3f}, {high:.3f}] |"
    )


def names(report: bool) -> Iterator[str]:
    yield from (made.name for made in (*TRUTHS, *RETUNED) if made.report == report)
    yield from (f"made, {kind}, {draw}" for draw in DRAWS[report] for kind in KINDS)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=1, help="of each truth")
    parser.add_argument("--budget", type=float, default=90.0, help="GPU seconds of each")
    parser.add_argument("--report", action="store_true", help="on the truths for reporting")
    parser.add_argument("--chance", type=float, default=next_run.LEAST_CHANCE)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rows, text = [], [HEADER, "|" + "---|" * HEADER.count(" |")]
    of = {
        above: [
            [
                (name, above, seed, options.budget, chance)
                for seed in range(options.searches)
                for name in names(options.report)
            ]
            for chance in (options.chance, 0.0)
        ]
        for above in LEVELS
    }
    every = sorted((t for ways in of.values() for way in ways for t in way), key=lambda t: t[2])
    search_all(every, options.cache)  # all levels of one seed before the next seed
    for ways in of.values():
        rows.append(row(*(search_all(way, options.cache) for way in ways)))
        text.append(line(rows[-1]))
    document = {"chance": options.chance, "budget_s": options.budget, "rows": rows}
    publish(options.output, "simulated", document, text)


if __name__ == "__main__":
    main()
