"""What would the pruner have done to runs that it never ends? From exported searches by `kg`.

    python benchmarks/pruning/repeats.py benchmarks/retune/campaign/*.json.gz benchmarks/retune/h100/*.json.gz --output benchmarks/pruning/repeats

A run of a configuration that has a complete run is never pruned, so its whole curve is there. Each such run is shown to the
pruner as if it were its configuration's first, with what had finished before it. So one sees how often good
configurations are ended, which a record of pruned trials cannot say. The default's runs are left out: they are never pruned.

How probable it is follows from the search, and from where a run ends: a logistic function of how far it lies inside what the
front dominates, in logarithms over SCALES. Searches with such pruning are simulated from it
(benchmarks/verdict/pruned_searches.py). Writes OUTPUT.md and OUTPUT.json.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.pruning.curve_sets import stopping_of
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.search.bounds import Caution, FinishedTrial
from tuner.search.history import Configuration, configuration
from tuner.search.pruning import Pruner
from tuner.spec.pareto import Point
from tuner.storage.records import device_seconds
from tuner.study.archive import Archive, read_archive
from tuner.study.results import TrialRecord
from tuner.study.snapshot import snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.worker.trial_source import finished_trial

SCALES = (0.5, 0.005)
DEEPEST = 3.0
"""A run that lies further inside is as surely ended."""
TOWARDS_MEAN = 0.3
"""One over the variance of the searches' own values, as believed before."""
BEFORE = Caution().min_finished
STEPS = 50
"""Of the fit, by Newton's method."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """One run, and what the pruner says of it."""

    recommended: bool
    """It is of the configuration that was recommended in the end."""
    inside: float
    share: float | None
    """Of its time, after which it would have been ended; None where it would not."""
    optimistic: Point | None
    """The optimistic end that was dominated then, over where it ended."""


@dataclass(frozen=True, slots=True)
class Search:
    name: str
    trials: int
    pruned: int
    pruned_share: float
    """Of the seconds that the search had its devices for."""
    by_one: float
    """Share of the pruned trials that one and the same trial dominates, the one with most of them."""
    again: int
    """Pruned trials of a configuration that was pruned before."""
    by_default: int
    """Pruned trials whose best end the default dominates, by its median run."""
    slow_share: float
    """Of the seconds once `BEFORE` trials had finished, for runs that ended slower and worse than the
    default: of those that trained to their end, what a pruner by the default could shorten."""
    repeats: tuple[Repeat, ...]


def inside(values: Point, front: Sequence[Point]) -> float:
    """How far a point lies inside what these dominate, at most `DEEPEST`; below 0 outside."""
    depths = [min(math.log(values[i] / other[i]) / SCALES[i] for i in (0, 1)) for other in front]
    return max(-DEEPEST, min(DEEPEST, max(depths)))


def searched(path: Path) -> Search:
    """Of one exported study."""
    archive = read_archive(path)
    study = snapshot(archive)
    records = sorted(study.results.records, key=lambda record: record.number)
    over = [record for record in records if record.state.is_finished()]
    pruned = [record for record in over if record.recorded.pruned_at_epoch is not None]
    spent = [device_seconds(record.recorded) for record in over]
    default = _default_of(over)
    by = Counter(record.recorded.pruned_dominated_by for record in pruned)
    there = confirmation_of(study)
    return Search(
        name=f"{path.parent.name}/{archive.name}",
        trials=len(over),
        pruned=len(pruned),
        pruned_share=sum(device_seconds(each.recorded) for each in pruned) / sum(spent),
        by_one=by.most_common(1)[0][1] / len(pruned) if pruned else 0.0,
        by_default=sum(_beyond(_best_end(each), default) for each in pruned),
        slow_share=_slow_share(over, default),
        again=len(pruned) - len({configuration(record.params) for record in pruned}),
        repeats=tuple(_repeats(archive, over, None if there is None else there.trial)),
    )


def _default_of(over: Sequence[TrialRecord]) -> Point:
    values = [each.values for each in over if each.is_default and each.values is not None]
    return statistics.median(s for s, _ in values), statistics.median(q for _, q in values)


def _best_end(record: TrialRecord) -> Point:
    seconds, mql = record.recorded.pruned_optimistic_s, record.recorded.pruned_optimistic_mql
    assert seconds is not None, "it was pruned"
    assert mql is not None, "it was pruned"
    return seconds, mql


def _beyond(values: Point, default: Point) -> bool:
    return values[0] >= default[0] and values[1] >= default[1]


def _slow_share(over: Sequence[TrialRecord], default: Point) -> float:
    late = over[BEFORE:]
    slow = [
        each
        for each in late
        if each.values is not None
        and each.recorded.pruned_at_epoch is None
        and not each.is_default
        and _beyond(each.values, default)
    ]
    spent, all_spent = (sum(device_seconds(e.recorded) for e in some) for some in (slow, late))
    return spent / all_spent


def _repeats(
    archive: Archive, over: Sequence[TrialRecord], recommended: int | None
) -> list[Repeat]:
    stopping = stopping_of(archive.definition.training)
    chosen = {configuration(record.params) for record in over if record.number == recommended}
    done: list[FinishedTrial] = []
    ran: set[Configuration] = set()
    found = []
    for record in over:
        if record.values is None or record.recorded.pruned_at_epoch is not None:
            continue
        mine = configuration(record.params)
        rows = archive.curves[record.number]
        losses = [row.val_loss for row in rows]
        elapsed_s = [row.elapsed_s for row in rows]
        if mine in ran and not record.is_default:
            pruner = Pruner(done, stopping)
            if pruner.ready:
                found.append(_judged(pruner, record.values, losses, elapsed_s, mine in chosen))
        ran.add(mine)
        done.append(finished_trial(record, (tuple(losses),)))
    return found


def _judged(
    pruner: Pruner, values: Point, losses: list[float], elapsed_s: list[float], chosen: bool
) -> Repeat:
    depth = inside(values, pruner.front)
    for epoch in range(1, len(losses)):  # after the last there is nothing to end
        verdict = pruner.verdict(losses[:epoch], elapsed_s[:epoch])
        if verdict is not None:
            seconds, mql = verdict.optimistic_end
            of_end = (seconds / values[0], mql / values[1])
            return Repeat(chosen, depth, elapsed_s[epoch - 1] / elapsed_s[-1], of_end)
    return Repeat(chosen, depth, None, None)


def fitted(searches: Sequence[Search]) -> tuple[list[float], float]:
    """The logistic function: its value at 0 for each search, and one slope, of most likelihood. The
    searches' own values are drawn towards their mean, for in some of them nothing was ended.
    """
    every = [(row, each) for row, one in enumerate(searches) for each in one.repeats]
    count = len(searches)
    x = np.zeros((len(every), count + 1))
    for i, (row, each) in enumerate(every):
        x[i, row], x[i, count] = 1.0, each.inside
    y = np.array([each.share is not None for _, each in every], dtype=float)
    w = np.zeros(count + 1)
    towards = np.diag([TOWARDS_MEAN] * count + [0.0])
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-x @ w))
        off = np.append(w[:count] - w[:count].mean(), 0.0)
        w = w + np.linalg.solve((x.T * (p * (1 - p))) @ x + towards, x.T @ (y - p) - towards @ off)
    return [float(each) for each in w[:count]], float(w[count])


def document(searches: Sequence[Search]) -> dict[str, Any]:
    every = [repeat for search in searches for repeat in search.repeats]
    ended = [repeat for repeat in every if repeat.share is not None]
    chosen = [repeat for repeat in every if repeat.recommended]
    at, slope = fitted(searches)
    optimistic = np.array([each.optimistic for each in ended])
    return {
        "repeats": len(every),
        "ended": len(ended) / len(every),
        "of_recommended": len(chosen),
        "recommended_ended": sum(each.share is not None for each in chosen) / len(chosen),
        "scales": SCALES,
        "at_the_front": at,
        "slope": slope,
        "share_of_time": float(np.median([each.share for each in ended])),
        "optimistic_over_end": [float(each) for each in np.median(optimistic, axis=0)],
        "searches": [
            {
                "search": one.name,
                "trials": one.trials,
                "pruned": one.pruned,
                "pruned_share": one.pruned_share,
                "by_one": one.by_one,
                "again": one.again,
                "by_default": one.by_default,
                "slow_share": one.slow_share,
                "repeats": len(one.repeats),
                "ended": sum(each.share is not None for each in one.repeats),
            }
            for one in searches
        ],
    }


def lines(found: dict[str, Any]) -> list[str]:
    seconds, mql = found["optimistic_over_end"]
    least, most = min(found["at_the_front"]), max(found["at_the_front"])
    every = found["searches"]
    slow = sorted(one["slow_share"] for one in every)
    text = [
        (
            f"Of {found['repeats']} repeated runs {found['ended']:.0%} would have been ended as first runs, and of the "
            f"{found['of_recommended']} of what was recommended {found['recommended_ended']:.0%}: after "
            f"{found['share_of_time']:.2f} of their time (median), at optimistic ends of {seconds:.2f} times the seconds and "
            f"{mql:.3f} times the MQL that they came to."
        ),
        "",
        (
            f"The chance is 1 / (1 + exp(-a - {found['slope']:.2f} d)), where d is how far inside the front's area a run ends: the "
            f"lesser of log time / {SCALES[0]} and log MQL / {SCALES[1]}. Each search has an a of its own, {least:.1f} to "
            f"{most:.1f}, in the median {np.median(found['at_the_front']):.1f}."
        ),
        "",
        (
            f"Of {sum(one['pruned'] for one in every)} pruned trials the default dominates the best end of "
            f"{sum(one['by_default'] for one in every)}. Once {BEFORE} trials have finished, runs that end slower and worse than "
            f"the default take {statistics.median(slow):.1%} of the seconds (median of the searches), at most {slow[-1]:.1%}."
        ),
        "",
        "| search | trials | pruned | of its seconds | by one and the same trial | pruned again | repeats | of these, would be |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found["searches"]:
        text.append(
            f"| {one['search']} | {one['trials']} | {one['pruned']} | {one['pruned_share']:.0%} | {one['by_one']:.0%} "
            f"| {one['again']} | {one['repeats']} | {one['ended'] / max(one['repeats'], 1):.0%} |"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", type=Path, nargs="+")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        found = document(list(pool.map(searched, options.studies)))
    where = circumstances("replayed")
    write(options.output, where | found, [*heading(where), *lines(found)])
    print("\n".join(lines(found)))


if __name__ == "__main__":
    main()
