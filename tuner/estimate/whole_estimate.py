"""All that `tuner estimate` tells, as one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.estimate.cost_model import Foretold, Size, SizeCosts, key_of, size_of, sizes_of
from tuner.estimate.foretold import HOUR_S, SearchForetold, elapsed, money, together
from tuner.files.plain import in_json
from tuner.search.methods import method_of
from tuner.spec.definition import StudyDefinition
from tuner.spec.margin import CONFIRMATION_SEEDS

# What the stages of a whole retune are foretold to take.


REEVALUATED, BESIDE_THEM = 108, 18
"""Runs of the re-evaluation of one search by a sampler that repeats nothing: 3 rounds of 6
configurations with 6 seeds, each half as long as one of the default; and those of the default."""
BESIDE_DEFAULT = Foretold(low=0.2, middle=1.0, high=1.5)
"""What a confirmation of one search takes beside the default, in runs of that on all its seeds:
nothing, where it stands, or up to three configurations that are faster. Of 45 that were recorded
(benchmarks/retune) 39 took so much. The default runs once for all searches of a variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Seconds of devices of a retune, all its variants together."""

    search: Foretold
    reevaluation: Foretold
    confirmation: Foretold

    @property
    def whole(self) -> Foretold:
        return together([self.search, self.reevaluation, self.confirmation], alike=True)


def stages_of(
    searches: Sequence[SearchForetold],
    *,
    sampler: str = "auto",
    seeds: int = CONFIRMATION_SEEDS,
    budget_s: float | None = None,
    over_s: Sequence[float] = (),
) -> Stages:
    """Of a retune with these searches, and with those that are over: a part of their trials run
    again where the sampler has not done so, and a confirmation of each on `seeds` seeds.

    Args:
        searches: those that trials are to come of, one at least.
        sampler: that chooses.
        seeds: of a confirmation.
        budget_s: for all searches and their re-evaluation.
        over_s: what each of the others held devices for.
    """
    usual = together([each.default_run for each in searches]).times(1 / len(searches))
    runs = [*(each.default_run for each in searches), *[usual] * len(over_s)]
    repeats = method_of(sampler).repeats
    times = 0.0 if repeats else REEVALUATED / 2 + BESIDE_THEM
    again = together([each.times(times) for each in runs], alike=True)
    searched = together([each.search for each in searches]).plus(sum(over_s))
    beside = [BESIDE_DEFAULT.times(seeds).by(each) for each in runs]
    defaults = [each.times(seeds) for each in dict.fromkeys(each.default_run for each in searches)]
    if budget_s is not None:
        again = again.at_most(max(0.0, budget_s - searched.low))
    return Stages(search=searched, reevaluation=again, confirmation=together([*beside, *defaults]))


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size of a space."""

    size: Size
    epoch: Foretold | None
    setup: Foretold | None
    peak: Foretold | None
    measured: bool
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "size": dict(self.size),
            **in_json(self, "measured", epoch_s="epoch", setup_s="setup", peak_bytes="peak"),
            "failure": self.failure or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEstimate:
    """Of one variant: its sizes, and its searches."""

    variant: str
    default: Size
    costs: SizeCosts
    sizes: tuple[SizeRow, ...]
    searches: tuple[SearchForetold, ...]
    """One at least. They differ in which of their trials have ended."""
    largest: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The largest batch that fits: of the default network, and of the largest of the space."""
    doubts: tuple[str, ...] = ()
    """Why its figures are not to be trusted."""

    @property
    def search(self) -> SearchForetold:
        """The first one."""
        return self.searches[0]

    def as_dict(self) -> dict[str, Any]:
        found = self.search
        return {
            **in_json(self, "variant", "doubts", "sizes", largest_batch="largest"),
            "measured_sizes": sum(row.measured for row in self.sizes),
            **in_json(self.costs, "start_s", "evaluation_s", "built_s", by_trials="from_trials"),
            **in_json(found, epoch_s="epoch", trial_s="trial", default_run_s="default_run"),
            **_plain(found),
            "searches": [_plain(each) for each in self.searches],
            "recorded_searches": found.searches,
        }


def _plain(found: SearchForetold) -> dict[str, Any]:
    names = {"search_s": "search", "trials_bought": "bought", "trials_ended": "ended"}
    return in_json(found, "trials", **names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of all variants that are searched, or retuned."""

    device_model: str
    devices: int
    variants: tuple[VariantEstimate, ...]
    searches: int
    stages: Stages | None
    """Of a retune; None for a study."""
    price_per_hour: float | None = None

    @property
    def device_s(self) -> Foretold:
        """Seconds of devices, all together."""
        if self.stages is not None:
            return self.stages.whole
        return together([one.search for each in self.variants for one in each.searches])

    @property
    def elapsed_s(self) -> Foretold:
        longest = max(each.search.trial.high for each in self.variants)
        start_s = max(each.costs.start_s for each in self.variants)
        return elapsed(self.device_s, devices=self.devices, longest_s=longest, start_s=start_s)

    @property
    def money(self) -> Foretold | None:
        return None if self.price_per_hour is None else money(self.device_s, self.price_per_hour)

    def as_dict(self) -> dict[str, Any]:
        stages, retune = self.stages, None
        if stages is not None:
            each = ("search", "reevaluation", "confirmation")
            taken = in_json(stages, **{f"{name}_s": name for name in each})
            retune = {"searches": self.searches, **taken}
        return {
            **in_json(self, "devices", "variants", "money", device="device_model"),
            "retune": retune,
            "gpu_hours": self.device_s.times(1 / HOUR_S).as_dict(),
            "elapsed_hours": self.elapsed_s.times(1 / HOUR_S).as_dict(),
            "price_per_gpu_hour": self.price_per_hour,
        }


def rows_of(definition: StudyDefinition, costs: SizeCosts) -> tuple[SizeRow, ...]:
    """Of every size of its space, the default's first."""
    default = size_of(definition.defaults.as_dict())
    sizes = list({key_of(s): s for s in (default, *sizes_of(definition.space))}.values())
    epochs, peaks = costs.epoch_seconds(sizes), costs.peak_bytes(sizes)
    setups = costs.setup_seconds(sizes)
    rows = []
    for size in sizes:
        key, seen = key_of(size), costs.of(size)
        if seen is None or seen.fits:
            figures = epochs.get(key), setups.get(key), peaks.get(key)
            rows.append(SizeRow(size, *figures, measured=seen is not None))
        else:
            rows.append(SizeRow(size, None, None, None, measured=True, failure=seen.failure))
    return tuple(rows)


# What is foretold, in words a person reads before spending.


_UNITS = ((HOUR_S, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
GIB = 1 << 30
CERTAIN = 1.01
"""A range whose ends are no further apart is one figure."""


def seconds_in_words(seconds: float) -> str:
    """`312 us`, `0.21 s`, `3.4 min`, `12 h`."""
    for size, unit in _UNITS:
        if seconds >= size * (2 if size >= 60 else 1):  # noqa: PLR2004 - a minute and a half are 90 s
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def range_in_words(found: Foretold) -> str:
    """`3.4 min (2.8 to 4.2)`, with the units where they differ."""
    low, high = seconds_in_words(found.low), seconds_in_words(found.high)
    if found.high <= CERTAIN * found.low:
        return seconds_in_words(found.middle)
    unit = high.split()[1]
    short = low.split()[0] if low.split()[1] == unit else low
    return f"{seconds_in_words(found.middle)} ({short} to {high})"


def device_time_in_words(found: Foretold, devices: int) -> str:
    """`12 h (9 to 15) of device time, 6 h (4.5 to 7.5) on 2 devices`."""
    several = f", {range_in_words(found.times(1 / devices))} on {devices} devices"
    return f"{range_in_words(found)} of device time{several if devices > 1 else ''}"


def hours_in_words(found: Foretold) -> str:
    """`1.2 (0.9 to 1.6)`, of seconds."""
    parts = (found.middle / HOUR_S, found.low / HOUR_S, found.high / HOUR_S)
    return "{:.3g} ({:.3g} to {:.3g})".format(*parts)


def bytes_in_words(number: float) -> str:
    return f"{number / GIB:.2f} GiB" if number >= GIB / 4 else f"{number / (1 << 20):.0f} MiB"


def searches_line(found: Sequence[SearchForetold], *, devices: int) -> str:
    """The same of several searches, all together."""
    whole = together([each.search for each in found])
    takes = device_time_in_words(whole, devices)
    ended = sum(each.ended for each in found)
    bought = together([each.bought or Foretold.exactly(each.trials) for each in found])
    if all(each.bought is not None for each in found):
        return (
            f"foretold: {len(found)} searches have {takes}, for {trials_in_words(bought, ended)} "
            "(four times out of five)"
        )
    if any(each.bought is not None for each in found):
        trials = f"{trials_in_words(bought, ended)} of {len(found)} searches"
    else:
        trials = f"{bought.middle:.0f} trials of {len(found)} searches"
    return f"foretold: {trials} take {takes} (four times out of five)"


def trials_in_words(found: Foretold, ended: int) -> str:
    """`some 410 trials (330 to 520)`: those that are to come in two digits, and those that have
    ended.
    """
    figures = [ended + _two_digits(each - ended) for each in (found.middle, found.low, found.high)]
    middle, low, high = figures
    if low == high:
        return f"{middle} {'trial' if middle == 1 else 'trials'}"
    return f"some {middle} trials ({low} to {high})"


def _two_digits(number: float) -> int:
    return round(float(f"{max(0.0, number):.2g}"))


def retune_line(stages: Stages, *, devices: int) -> str:
    """What a retune says before it begins: what follows its searches."""
    return (
        f"foretold: the whole retune takes {device_time_in_words(stages.whole, devices)}, its "
        f"confirmation {range_in_words(stages.confirmation)} of that"
    )


def search_line(name: str, found: SearchForetold, *, devices: int, from_trials: bool) -> str:
    """What a launch says before it begins, in one line."""
    own = from_trials or (found.ended and not found.searches)
    by = "its own trials" if own else "batches measured here"
    begun = f", {found.ended} of them done" if found.ended else ""
    takes = device_time_in_words(found.search, devices)
    also = f" and {found.searches} recorded searches" if found.searches else ""
    sure = f"(four times out of five; by {by}{also})"
    if found.bought is not None:
        bought = trials_in_words(found.bought, found.ended)
        return f"foretold: {name} has {takes}, for {bought}{begun} {sure}"
    return f"foretold: {found.trials} trials of {name}{begun} take {takes} {sure}"
