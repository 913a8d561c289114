"""What is true of what `tuner confirm` says of TPE's searches, on twelve jobs whose truth is known:

    python -m benchmarks.own_search.truths_confirmed [--searches 16] [--jobs 2] [--output OUT/truths]

Each truth (benchmarks/verdict/truths.py) is searched by Optuna's TPESampler with two objectives, the default first. What is kept
of a search is what Optuna keeps: parameters, one value a trial, its duration. The plan of a confirmation is then made of it by the
code of `tuner confirm`, its runs are drawn, and its tests decide; TPE's best trial (the fastest whose one value is within the margin
of the default's one value) is confirmed by the same test. Times are over the default's; what is not confirmed counts 1.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()

import numpy as np
import optuna

from benchmarks.verdict.budgets import Gpu
from benchmarks.verdict.others_contenders import place_of
from benchmarks.verdict.over_truths import over_truths
from benchmarks.verdict.simulation_files import of_each_search, options_of, publish
from benchmarks.verdict.truths import TRUTHS, truth
from tuner.spec.margin import MARGIN, Question
from tuner.worker.functions.confirm import REFERENCE, SEEDS, Margin, Ran, planned, reference_of
from tuner.worker.functions.foreign import Configuration, ForeignStudy

MARGIN_OF = Margin(relative=MARGIN)
CONFIRMATIONS = 20
"""Of each search, so that one lucky confirmation does not count."""


def searched(name: str, seed: int, trials: int) -> ForeignStudy:
    """What Optuna keeps of a search."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    job, gpu = truth(name), Gpu(name, seed, math.inf)
    space = job.space.encoded()
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.enqueue_trial(job.space.encode(job.default))
    kept = []
    for number in range(trials):
        trial = study.ask(space)
        ended = gpu.train(place_of(job, trial.params))
        study.tell(trial, (ended.seconds, ended.mql))
        if ended.converged:
            kept.append(
                Configuration(
                    trial=number, params=trial.params, reported=ended.mql, cost=ended.seconds
                )
            )
    return ForeignStudy(
        source="",
        name=name,
        directions=("minimize",),
        trials=tuple(kept),
        attributes={},
    )


def best_of_tpe(study: ForeignStudy) -> Configuration:
    """The fastest trial whose one value is within the margin of the default's one value."""
    most = (1 + MARGIN) * study.low_value(study.trials[0])
    within = [each for each in study.trials if study.low_value(each) <= most]
    return min(within, key=lambda each: each.cost)


def drawn(gpu: Gpu, configuration: Configuration) -> Ran:
    """Runs on fresh seeds."""
    where = place_of(truth(gpu.name), configuration.params)
    ended = [gpu.drawn(where) for _ in range(SEEDS)]
    values, seconds = ([getattr(each, of) for each in ended] for of in ("mql", "seconds"))
    return Ran(dict(enumerate(values)), dict(enumerate(seconds)), SEEDS, sum(seconds))


def last_claimed(gpu: Gpu, chain: Sequence[Configuration]) -> Configuration | None:
    """The last of a chain, which the reference begins, that is claimed."""
    usual, *runs = [drawn(gpu, each) for each in chain]
    claimed = None
    for each, ran in zip(chain[1:], runs, strict=True):
        if not ran.is_good(usual, MARGIN_OF, Question.MARGIN):
            break
        claimed = each
    return claimed


def one_search(name: str, seed: int, trials: int = 80) -> dict[str, Any]:
    """What is true of a search's best, and of what is confirmed."""
    job, gpu = truth(name), Gpu(name, seed + 1000, math.inf)
    study = searched(name, seed, trials)
    best = best_of_tpe(study)
    reference = reference_of(study, None, job.space.encode(job.default))
    plan = planned(study, reference, MARGIN_OF, SEEDS)
    usual = plan.configurations[REFERENCE]
    chains = {"ours": [usual, *(plan.configurations[place] for place in plan.steps)]}
    chains["tpe"] = [usual, best]

    def truly(configuration: Configuration) -> tuple[float, bool]:
        here, there = (gpu.known(place_of(job, each.params)) for each in (configuration, usual))
        ratio = math.exp(here.log_seconds - there.log_seconds)
        return ratio, here.mql <= (1 + MARGIN) * there.mql

    found: dict[str, Any] = {"truth": name, "seed": seed, "best": truly(best)}
    for who, chain in chains.items():
        ends = [last_claimed(gpu, chain) for _ in range(CONFIRMATIONS)]
        found[who] = [None if each is None else truly(each) for each in ends]
    return found


def lines_of(searches: Sequence[dict[str, Any]]) -> list[str]:
    within = [each["best"][1] for each in searches]
    text = [
        f"TPE's best trial is truly within the margin in {np.mean(within):.0%} of {len(within)} searches.",
        "",
        "| confirmed | in so many | of these truly within | time, unconfirmed = 1 | standard error |",
        "|---|---|---|---|---|",
    ]
    for who, title in (("tpe", "TPE's best trial"), ("ours", "what `tuner confirm` tests")):
        ends = [end for each in searches for end in each[who]]
        claimed = [end for end in ends if end is not None]
        by_truth: dict[str, list[float]] = {}
        for each in searches:
            times = [1.0 if end is None else end[0] for end in each[who]]
            by_truth.setdefault(each["truth"], []).append(float(np.mean(times)))
        mean, error = over_truths(by_truth.values())
        share = float(np.mean([good for _, good in claimed])) if claimed else math.nan
        text.append(
            f"| {title} | {len(claimed) / len(ends):.0%} | {share:.1%} | {mean:.3f} | {error:.3f} |"
        )
    return text


def main(arguments: Iterable[str] | None = None) -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=16, help="of each truth")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(None if arguments is None else list(arguments))
    todo = [(made.name, seed) for made in TRUTHS for seed in range(options.searches)]
    searches = list(of_each_search(one_search, todo, options.jobs))
    publish(options.output, "simulated", {"searches": searches}, lines_of(searches))


if __name__ == "__main__":
    main()
