"""What is foretold, in words a person reads before spending."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.estimate.cost_model import Foretold
from tuner.estimate.foretold import HOUR_S, SearchForetold, together
from tuner.estimate.stages_ahead import Stages

_UNITS = ((HOUR_S, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"))
GIB = 1 << 30
CERTAIN = 1.01
"""A range whose ends are no further apart is one figure."""


def seconds_in_words(seconds: float) -> str:
    """`0.21 s`, `3.4 min`, `12 h`."""
    for size, unit in _UNITS:
        if seconds >= size * (2 if size >= 60 else 1):  # noqa: PLR2004 - a minute and a half are 90 s
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e3:.2g} ms"


def range_in_words(found: Foretold) -> str:
    """`3.4 min (2.8 to 4.2)`, with the units where they differ."""
    low, high = seconds_in_words(found.low), seconds_in_words(found.high)
    if found.high <= CERTAIN * found.low:
        return seconds_in_words(found.middle)
    unit = high.split()[1]
    short = low.split()[0] if low.split()[1] == unit else low
    return f"{seconds_in_words(found.middle)} ({short} to {high})"


def hours_in_words(found: Foretold) -> str:
    """`1.2 (0.9 to 1.6)`, of seconds."""
    parts = (found.middle / HOUR_S, found.low / HOUR_S, found.high / HOUR_S)
    return "{:.3g} ({:.3g} to {:.3g})".format(*parts)


def bytes_in_words(number: float) -> str:
    return f"{number / GIB:.2f} GiB" if number >= GIB / 4 else f"{number / (1 << 20):.0f} MiB"


def searches_line(found: Sequence[SearchForetold], *, devices: int) -> str:
    """The same of several searches, all together."""
    whole = together([each.search for each in found])
    several = f", {range_in_words(whole.times(1 / devices))} on {devices} devices"
    takes = f"{range_in_words(whole)} of device time{several if devices > 1 else ''}"
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
    whole = stages.whole
    several = f", {range_in_words(whole.times(1 / devices))} on {devices} devices"
    ablation = ""
    if stages.ablation is not None:
        ablation = f" and its ablation {range_in_words(stages.ablation)}"
    return (
        f"foretold: the whole retune takes {range_in_words(whole)} of device time"
        f"{several if devices > 1 else ''}, its confirmation "
        f"{range_in_words(stages.confirmation)}{ablation} of that"
    )


def search_line(name: str, found: SearchForetold, *, devices: int, from_trials: bool) -> str:
    """What a launch says before it begins, in one line."""
    left = found.search.plus(0.0)
    own = from_trials or (found.ended and not found.searches)
    by = "its own trials" if own else "batches measured here"
    begun = f", {found.ended} of them done" if found.ended else ""
    several = f", {range_in_words(left.times(1 / devices))} on {devices} devices"
    takes = f"{range_in_words(left)} of device time{several if devices > 1 else ''}"
    also = f" and {found.searches} recorded searches" if found.searches else ""
    sure = f"(four times out of five; by {by}{also})"
    if found.bought is not None:
        bought = trials_in_words(found.bought, found.ended)
        return f"foretold: {name} has {takes}, for {bought}{begun} {sure}"
    return f"foretold: {found.trials} trials of {name}{begun} take {takes} {sure}"
