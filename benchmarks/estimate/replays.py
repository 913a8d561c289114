"""Are the ranges of a study's hours right? Recorded searches, each foretold without itself:

    python -m benchmarks.estimate.replays
    python -m benchmarks.estimate.replays --measured 3
    python -m benchmarks.estimate.replays --without-its-retune
    python -m benchmarks.estimate.replays --without-its-variant

A replay takes a recorded search, a number of trials N that it has, and k of them as ended, and foretells
what all N held their devices for. All replays are made: the shares of 200 drawn ones moved by six points from
draw to draw. Its own epoch seconds by size, and what its trials took beside training, stand for what `tuner estimate` measures; neither it nor a twin (the same configurations) is among the recorded searches
it is foretold from. With `--measured` so many sizes alone are known, those that are measured first;
with `--without-its-retune` the other searches of its variant in its folder are left out, too, as for a variant or a
device that nobody has searched on; with `--without-its-variant` all searches of its variant, as for a network that nobody has searched. Replays of one search with several N are not independent: searches count alike, whatever
their length.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.estimate.recorded import (
    costs_of,
    ended_of,
    epoch_seconds,
    exports,
    overheads,
    same_trials,
    trials_of,
)
from tuner.estimate import foretold
from tuner.estimate.cost_model import (
    Foretold,
    MeasuredSize,
    SizeCosts,
    key_of,
    size_of,
    sizes_of,
    to_measure,
)
from tuner.estimate.foretold import (
    Ended,
    default_is_cut,
    search_seconds,
    trials_bought,
)
from tuner.estimate.work_ahead import Kind, SpaceCosts, WorkAhead, recorded_searches, work_ahead
from tuner.study.archive import Archive

LENGTHS = (40, 60, 80, 100, 120, 160, 200, 300, 400)
SEEN = (0, 10, 20, 30)
LEAST_TO_COME = 0.25
MORE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    search: str
    trials: int
    seen: int
    truth_s: float
    low_s: float
    high_s: float
    searches: int
    """Recorded ones that it was foretold from; 0: from its own trials alone."""
    bought: Foretold
    """Trials foretold for the device time that all of them took."""

    @property
    def covered(self) -> bool:
        return self.low_s <= self.truth_s <= self.high_s

    @property
    def count_covered(self) -> bool:
        return self.bought.low <= self.trials <= self.bought.high

    @property
    def ratio(self) -> float:
        return self.high_s / self.low_s


def kind_of(archive: Archive) -> Kind:
    policy = archive.policy
    return foretold.kind_of(archive.definition, sampler=policy.sampler, prune=policy.prune)


class Replayer:
    """All recorded searches, and who is a twin of whom."""

    def __init__(
        self,
        *,
        as_unpruned: bool = False,
        measured: int | None = None,
        without_its_retune: bool = False,
        without_its_variant: bool = False,
    ) -> None:
        self.archives = exports()
        self._prune = False if as_unpruned else None
        if as_unpruned:
            recorded = {each.name: each for each in recorded_searches()}
            self.archives = {
                name: archive
                for name, archive in self.archives.items()
                if recorded[name].repeats and recorded[name].prunes_like(False)
            }
        self.figures: dict[str, list[Foretold]] = {}
        self.costs: dict[str, SpaceCosts] = {}
        for name, archive in self.archives.items():
            known = epoch_seconds(archive)
            figures = {key: Foretold.exactly(each) for key, each in known.items()}
            if measured is not None:
                figures = of_few_sizes(archive, known, measured)
            default = figures.get(key_of(size_of(archive.definition.defaults.as_dict())))
            self.figures[name] = list(figures.values())
            self.costs[name] = SpaceCosts(
                [each.middle for each in figures.values()],
                None if default is None else default.middle,
            )
        self.twins = {
            name: {other for other, b in self.archives.items() if same_trials(a, b)}
            for name, a in self.archives.items()
        }
        if without_its_retune:
            for name, twins in self.twins.items():
                twins.update(
                    each for each in self.archives if self._retune(each) == self._retune(name)
                )
        if without_its_variant:
            for name, twins in self.twins.items():
                twins.update(
                    each for each in self.archives if self._variant(each) == self._variant(name)
                )

    def _variant(self, name: str) -> str:
        return self.archives[name].definition.variant

    def _retune(self, name: str) -> tuple[str, str]:
        return name.rpartition("/")[0], self._variant(name)

    def of_neuralforecast(self, name: str) -> bool:
        return self.archives[name].definition.architecture.model.startswith("neuralforecast:")

    def cases(self) -> list[tuple[str, int]]:
        found = []
        for name, archive in self.archives.items():
            there = len(trials_of(archive))
            found += [(name, n) for n in LENGTHS if n <= there]
        return found

    def replay(self, name: str, trials: int, seen: int) -> Replay | None:
        archive = self.archives[name]
        ended = ended_of(archive)[:trials]
        ahead = self._ahead(name, ended[:seen], trials=trials)
        if ahead is None:
            return None
        measured_s = statistics.median(overheads(archive) or [0.0])
        found = search_seconds(ahead, ended[:seen], trials=trials, measured_s=measured_s)
        truth_s = sum(each.held_s for each in ended)
        # Nobody knows then how many trials there will be: the courses go on.
        longer = self._ahead(name, ended[:seen], trials=MORE * trials)
        assert longer is not None, "there is more to come than there was"
        bought = trials_bought(longer, ended[:seen], measured_s=measured_s, within_s=truth_s)
        return Replay(
            search=name,
            trials=trials,
            seen=seen,
            bought=bought,
            truth_s=truth_s,
            low_s=found.low,
            high_s=found.high,
            searches=ahead.searches,
        )

    def kind(self, name: str) -> Kind:
        kind = kind_of(self.archives[name])
        return kind if self._prune is None else replace(kind, prune=self._prune)

    def _ahead(self, name: str, ended: list[Ended], *, trials: int) -> WorkAhead | None:
        others = [each for each in recorded_searches() if each.name not in self.twins[name]]
        return work_ahead(
            replace(self.kind(name), default_cut=default_is_cut(ended)),
            self.costs[name],
            others,
            trials=trials,
            seen_s=[each.trained_s for each in ended],
            unsure=foretold.off_in_common(self.figures[name]),
        )


def of_few_sizes(archive: Archive, known: Mapping[str, float], most: int) -> dict[str, Foretold]:
    """Seconds an epoch of all sizes, foretold from those that are measured first."""
    definition = archive.definition
    first = to_measure(definition.space, definition.defaults, most=most)
    _, windows = costs_of(archive)
    costs = SizeCosts(
        device_model="",
        windows=windows,
        sizes=tuple(
            MeasuredSize(size=each, epoch_s=known[key_of(each)])
            for each in first
            if key_of(each) in known
        ),
    )
    return costs.epoch_seconds(sizes_of(definition.space))


def replays(replayer: Replayer, seen: int) -> list[Replay]:
    """Of every search, at each length it has that leaves enough to come."""
    found = []
    for name, n in replayer.cases():
        if seen <= (1 - LEAST_TO_COME) * n:
            made = replayer.replay(name, n, seen)
            if made is not None:
                found.append(made)
    return found


def groups_of(replayer: Replayer) -> dict[str, Callable[[Replay], bool]]:
    """Searches that are told of apart, as far as their kind is known when they are foretold."""
    return {
        "all": lambda _each: True,
        "chosen by what ran before": lambda each: not replayer.kind(each.search).all_over,
        "of these by a sampler that repeats, as `auto` does": (
            lambda each: replayer.kind(each.search).repeats and each.searches > 0
        ),
        "whose default is cut off": lambda each: each.searches == 0,
        "of networks of neuralforecast": lambda each: replayer.of_neuralforecast(each.search),
        "spread all over the space": lambda each: replayer.kind(each.search).all_over,
    }


def row(made: list[Replay]) -> dict[str, Any]:
    """Shares count each search alike, whatever its lengths."""
    lengths = Counter(each.search for each in made)
    weights = np.array([1 / lengths[each.search] for each in made])
    ratios = [each.ratio for each in made]

    def share(holds: list[bool]) -> float:
        return float(np.average(holds, weights=weights))

    return {
        "seen": made[0].seen,
        "replays": len(made),
        "searches": len(lengths),
        "count_covered": share([each.count_covered for each in made]),
        "covered": share([each.covered for each in made]),
        "ratio_median": float(np.median(ratios)),
        "ratio_highest": max(ratios),
        "at_most_1.5": share([r <= 1.5 for r in ratios]),
    }


def line(found: Mapping[str, Any]) -> str:
    return (
        f"| {found['seen']} | {found['searches']}, {found['searches_of']} | {found['replays']} | "
        f"{100 * found['covered']:.0f} % | {found['ratio_median']:.2f} | {found['ratio_highest']:.2f} | "
        f"{100 * found['at_most_1.5']:.0f} % | {100 * found['count_covered']:.0f} % |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--as-unpruned",
        action="store_true",
        help="searches that repeat, and hardly pruned, foretold as those that do not prune",
    )
    parser.add_argument("--measured", type=int, help="so many sizes; all by default")
    parser.add_argument(
        "--without-its-retune", action="store_true", help="nor by the searches beside it"
    )
    parser.add_argument(
        "--without-its-variant", action="store_true", help="nor by any search of its variant"
    )
    options = parser.parse_args()
    replayer = Replayer(
        as_unpruned=options.as_unpruned,
        measured=options.measured,
        without_its_retune=options.without_its_retune,
        without_its_variant=options.without_its_variant,
    )
    rows = []
    for seen in SEEN:
        made = replays(replayer, seen)
        for group, belongs in groups_of(replayer).items():
            if mine := [each for each in made if belongs(each)]:
                rows.append({"searches_of": group, **row(mine)})
    print(
        "| trials seen | searches | replays | in the 80 % range | high : low, median | highest | at most 1.5 | trials of a budget in their range |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(map(line, rows)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
