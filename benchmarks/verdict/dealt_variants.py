"""Searches of one job dealt to four variants: is a difference claimed where there is none?

    python benchmarks/verdict/dealt_variants.py --searches 40 --deals 300 --jobs 2 --output OUT/dealt-variants

Every search is of the same network, so whatever is claimed between two variants is wrong. Each deal
takes five searches, or --of-each, for each of four variants, the first being the reference, and goes the product's
way: each search freezes what it tests against the reference's default; all of it runs on 30, 60 or 90
fresh seeds, the default once for all searches; one rule says what answers; and exact tests compare the three others with the reference. `--deals` are of each truth. With the same deals one variant's times are planted 1.5 times
as long, which should be found. Searches are kept in a file that is not committed. Writes OUTPUT.md
and OUTPUT.json.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np

from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.looked import P, in_order, looks
from benchmarks.verdict.next_runs import Searched
from benchmarks.verdict.simulation_files import (
    kept,
    of_each_search,
    options_of,
    publish,
    searches_in,
)
from benchmarks.verdict.truths import RETUNED, TRUTHS, noise_of_mql, truth
from tuner.spec.margin import CONFIRMATION_SEEDS, MARGIN, Question
from tuner.spec.policy import CAP
from tuner.verdict.confirmation_plan import confirmation_steps
from tuner.verdict.known_runs import Run
from tuner.verdict.recommendation import recommend
from tuner.verdict.runs_model import Quality, RunsModel
from tuner.verdict.stats.noninferiority import misses_more, p_apart
from tuner.verdict.stats.searches import NOT_REACHED, compare_with_reference

Array = np.ndarray[Any, Any]

CACHE = Path(__file__).parent / "dealt-searches.jsonl"
DESIGN = looks(CONFIRMATION_SEEDS)
VARIANTS = 4
FIRSTS = 8
"""Searches whose model may say the quality that is asked for. The reference has none of them for
sure: eight that are lucky together would make it faster in each deal."""
PLANTED = 1.5
LOG_TIME = 0.12
"""Standard deviation of the logarithm of a training's time over seeds."""
KINDS = ("as recorded", "t, 3 df", "10 % fail", "two of five fall back")


def searched(name: str, seed: int, budget_s: float) -> dict[str, Any]:
    """What a search trained."""
    gpu = Gpu(name, seed, budget_s, cap=CAP)
    Searched(gpu, "kg").spend()
    return {
        "truth": name,
        "seed": seed,
        "budget_s": budget_s,
        "spent_s": gpu.spent_s,
        "runs": [[r.trial, *r.where, r.seconds, r.mql, r.epochs] for r in gpu.runs()],
    }


Frozen = dict[int, tuple[Place, ...]]
"""What a search tests, the surest first, by the reference's first search."""


def frozen(search: dict[str, Any], levels: dict[int, Quality]) -> Frozen:
    model, where = _model(search)
    chosen = recommend(model).chosen
    first, found = chosen.trial if chosen else None, {}
    for seed, level in levels.items():
        offers = confirmation_steps(model, first, margin=MARGIN, level=level)
        found[seed] = tuple(where[each.trial] for each in offers)
    return found


def _model(search: dict[str, Any]) -> tuple[RunsModel, dict[int, Place]]:
    runs = [
        Run(trial=row[0], where=tuple(row[1:-3]), seconds=row[-3], mql=row[-2], epochs=row[-1])
        for row in search["runs"]
    ]
    return RunsModel(runs, 0), {run.trial: run.where for run in runs}


class Bench:
    """Trainings on fresh seeds of one truth, and what they say."""

    def __init__(self, name: str, kind: str, random: np.random.Generator) -> None:
        self._job, self._kind, self._random = truth(name), kind, random
        self.default: Place = tuple(self._job.where(self._job.default)[0].tolist())
        self._known = functools.cache(self._looked_up)
        self.ran = 0
        """Runs of what was held against the default."""

    def _looked_up(self, where: Place) -> tuple[float, float, float]:
        here = np.array([where])
        job = self._job
        return tuple(float(f(here)[0]) for f in (job.log_epochs, job.seconds, job.mql))  # type: ignore[return-value]

    def mqls(self, where: Place) -> Array:
        """On as many seeds as a confirmation may have; NaN where one failed."""
        log_epochs, _, mql = self._known(where)
        epochs = np.full(CONFIRMATION_SEEDS, math.exp(log_epochs))
        noise = noise_of_mql(epochs, self._random, self._job.noise)
        if self._kind == "t, 3 df":
            noise = noise.std() * self._random.standard_t(3, len(noise)) / math.sqrt(3)
        if self._kind == "10 % fail":
            noise = np.where(self._random.random(len(noise)) < 0.1, np.nan, noise)
        return mql + noise

    def seconds(self, where: Place) -> float:
        """The median of its runs."""
        error = LOG_TIME * math.sqrt(math.pi / 2 / CONFIRMATION_SEEDS)
        return self._known(where)[1] * math.exp(error * self._random.standard_normal())

    def answer(self, offers: Sequence[Place], default: Array, *, reference: bool) -> float:
        """As `tuner.verdict.compare.registered` finds it."""
        found = self._last_claimed(offers, default)
        if found is None:
            found = self.default if reference else self._last_claimed([self.default], default)
        return NOT_REACHED if found is None else self.seconds(found)

    def _last_claimed(self, offers: Sequence[Place], default: Array) -> Place | None:
        tests = [self._apart(self.mqls(place), default) for place in offers]
        claimed, ends = in_order(tests, DESIGN, Question.ANOTHERS)
        self.ran += sum(ends)
        return offers[claimed - 1] if claimed else None

    def _apart(self, mine: Array, default: Array) -> P:
        """Against the runs that the reference's default has had by then."""

        def p_after(blocks: int) -> float:
            both = [(each, ~np.isnan(each)) for each in (mine[:blocks], default[:, :blocks])]
            runs = [(int((~there).sum()), there.size) for _, there in both]
            if misses_more(*runs):
                return 1.0
            one, other = (each[there].tolist() for each, there in both)
            return p_apart(one, other, margin=MARGIN)

        return p_after


Times = dict[str, list[float]]


def deal(name: str, searches: dict[int, Frozen], kind: str, number: int, of_each: int) -> Times:
    """By variant, of so many searches of each; "0" is the reference."""
    random = np.random.default_rng([number, truth(name).made.seed, KINDS.index(kind)])
    bench = Bench(name, kind, random)
    first = sorted(searches)[int(random.integers(FIRSTS))]
    drawn = random.permutation(sorted(searches))[: VARIANTS * of_each].tolist()
    default = np.array([bench.mqls(bench.default)])  # one for all searches
    times: dict[str, list[float]] = {}
    for variant in range(VARIANTS):
        mine = drawn[variant * of_each : (variant + 1) * of_each]
        times[str(variant)] = []
        for nth, seed in enumerate(mine):
            of = searches[seed]
            falls_back = kind == "two of five fall back" and nth < 2 * of_each / 5
            offers = () if falls_back else of[first]
            times[str(variant)].append(bench.answer(offers, default, reference=variant == 0))
    return times


@dataclass(frozen=True, slots=True)
class Counted:
    """Of deals of one truth: how many claim anything, how many claims say that the variant is
    faster or slower, how often the planted one is found, and the share of answers by kind.

    Three claims of a deal share their reference, so a direction is tested by `one_faster` and
    `one_slower`: those of one variant of each deal, whose turn its number says.
    """

    truth: str
    kind: str
    deals: int
    claimed: int
    faster: int
    slower: int
    one_faster: int
    one_slower: int
    found: int
    recommended: float
    not_reached: float


def counted(name: str, searches: dict[int, Frozen], kind: str, deals: int, of_each: int) -> Counted:
    claimed = faster = slower = one_faster = one_slower = found = 0
    answers: list[float] = []
    default_s = Bench(name, kind, np.random.default_rng(0)).seconds
    usual = default_s(tuple(truth(name).where(truth(name).default)[0].tolist()))
    for number in range(deals):
        times = deal(name, searches, kind, number, of_each)
        answers += [each / usual for mine in times.values() for each in mine]
        between = [each for each in compare_with_reference("0", times) if each.claimed]
        claimed += bool(between)
        faster += sum(each.high < 1 for each in between)
        slower += sum(each.low > 1 for each in between)
        turn = [each for each in between if each.a == str(1 + number % (VARIANTS - 1))]
        one_faster += any(each.high < 1 for each in turn)
        one_slower += any(each.low > 1 for each in turn)
        planted = {**times, "1": [PLANTED * each for each in times["1"]]}
        found += any(
            each.a == "1" and each.claimed and each.low > 1
            for each in compare_with_reference("0", planted)
        )
    share = np.array(answers)
    return Counted(
        name,
        kind,
        deals,
        claimed,
        faster,
        slower,
        one_faster,
        one_slower,
        found,
        float((share < 0.9).mean()),
        float(np.isinf(share).mean()),
    )


def of_truth(
    name: str, searches: Sequence[dict[str, Any]], deals: int, of_each: int
) -> Iterator[Counted]:
    """Of each kind of noise."""
    mine = {each["seed"]: each for each in searches if each["truth"] == name}
    levels = {s: _model(mine[s])[0].quality_of_default() for s in sorted(mine)[:FIRSTS]}
    ready = {seed: frozen(each, levels) for seed, each in mine.items()}
    for kind in KINDS:
        yield counted(name, ready, kind, deals, of_each)


def _exact(count: int, of: int) -> str:
    from scipy.stats import binomtest

    ends = binomtest(count, of).proportion_ci(method="exact")
    return f"{count / of:.1%} [{ends.low:.1%}, {ends.high:.1%}]"


def lines(found: Sequence[Counted]) -> list[str]:
    """A row for each kind of noise."""
    from scipy.stats import binomtest

    text = [
        "| seeds | deals | any claim | faster, slower | of one variant a deal (p) | 1.5 times found | faster answers | not reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        mine = [each for each in found if each.kind == kind]
        deals, claimed, faster, slower, one, other, planted = (
            sum(getattr(each, name) for each in mine)
            for name in (
                "deals", "claimed", "faster", "slower", "one_faster", "one_slower", "found",
            )
        )  # fmt: skip
        even = binomtest(one, one + other).pvalue if one + other else 1.0
        text.append(
            f"| {kind} | {deals} | {_exact(claimed, deals)} | {faster}, {slower} | {one}, {other} ({even:.2f}) | "
            f"{_exact(planted, deals)} | {np.mean([m.recommended for m in mine]):.0%} | "
            f"{np.mean([m.not_reached for m in mine]):.1%} |"
        )
    return text


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=40, help="of each truth")
    parser.add_argument("--first", type=int, default=0, help="seed of the first search")
    parser.add_argument("--budget", type=float, default=120.0, help="GPU seconds of each")
    parser.add_argument("--of-each", type=int, default=5, help="searches of a variant")
    parser.add_argument("--deals", type=int, default=300, help="of each truth")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    names = [made.name for made in (*TRUTHS, *RETUNED) if made.report]
    seeds = range(options.first, options.first + options.searches)
    there = {
        (one["truth"], one["seed"]): one
        for one in searches_in(options.cache)
        if one["budget_s"] == options.budget
    }
    todo = [(name, seed) for name in names for seed in seeds if (name, seed) not in there]
    if todo:
        search = functools.partial(searched, budget_s=options.budget)
        for one in kept(of_each_search(search, todo, options.jobs), options.cache):
            there[one["truth"], one["seed"]] = one
    searches = [there[name, seed] for name in names for seed in seeds]
    found = [
        each for name in names for each in of_truth(name, searches, options.deals, options.of_each)
    ]
    document = {"budget_s": options.budget, "found": [asdict(each) for each in found]}
    text = [
        f"{options.searches} searches of {options.budget:g} s of each of {len(names)} truths.",
        "",
    ]
    publish(options.output, "simulated", document, [*text, *lines(found)])


if __name__ == "__main__":
    main()
