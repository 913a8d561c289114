"""What the epochs of a training say of its throughput: how it went, and whether it fell.

Seconds are those of the training's clock, validation included. Only epochs that compare are
compared: of one attempt, without its first (caches, clocks and kernels are cold), and validated or
not validated.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config import EpochRecord
from tuner.record import Recorded
from tuner.storage.queue.epochs import EpochRow

LEAST = 12
"""Epochs to compare, below which nothing is said: groups of three at either end."""
SMALLEST_GROUP = 3
FALL = 4 / 3
"""Epochs have to take this many times as long: a quarter of the throughput is lost."""
NOISE = 5.0
"""And longer than the noise allows, in standard errors of the difference of two medians."""
_OF_MEDIAN = 1.2533
"""The standard error of a median beside that of a mean, and a standard deviation beside the mean
absolute one: of normal noise they are the same."""
_OF_DEVIATION = 1.4826
"""A standard deviation beside the median absolute one, of normal noise."""


Curve = Sequence[EpochRecord] | Sequence[EpochRow]
"""Finished epochs, from memory or from the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The epochs of a training that compare: their numbers, and the seconds of each."""

    epochs: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def fall(self) -> Fall | None:
        """From the first epochs to the last ones; None where it is none, or not known to be one.

        The medians of the first and the last quarter are compared, so that single slow epochs say
        nothing.
        """
        count = len(self.seconds)
        if count < LEAST:
            return None
        size = max(SMALLEST_GROUP, count // 4)
        logs = [math.log(seconds) for seconds in self.seconds]
        first, last = logs[:size], logs[-size:]
        slower = statistics.median(last) - statistics.median(first)
        noise = max(_from_one_to_the_next(logs), _within(first), _within(last))
        error = noise * _OF_MEDIAN * math.sqrt(2 / size)
        if slower < max(math.log(FALL), NOISE * error):
            return None
        return Fall(
            epochs=(self.epochs[(size - 1) // 2], self.epochs[-1 - (size - 1) // 2]),
            seconds=self._at_ends(size),
        )

    @property
    def ends(self) -> tuple[float, float] | None:
        """Seconds an epoch at first and at last: medians of a quarter each, or of one epoch; None
        where there are no two.
        """
        count = len(self.seconds)
        if count < 2:  # noqa: PLR2004
            return None
        return self._at_ends(max(1, count // 4))

    def _at_ends(self, size: int) -> tuple[float, float]:
        return statistics.median(self.seconds[:size]), statistics.median(self.seconds[-size:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fall:
    """A throughput that fell: seconds an epoch around the first and the second of two `epochs`."""

    epochs: tuple[int, int]
    seconds: tuple[float, float]

    def in_words(self, windows: int | None) -> str:
        """One sentence, in samples a second where the windows of an epoch are known.

        `throughput fell from 2,052 to 539 samples/s between epochs 4 and 60`.
        """
        between = f"between epochs {self.epochs[0]} and {self.epochs[1]}"
        if windows is None:
            first, last = (f"{seconds:.3g}" for seconds in self.seconds)
            return f"throughput fell: an epoch went from {first} to {last} s {between}"
        first, last = (rate(windows / seconds) for seconds in self.seconds)
        return f"throughput fell from {first} to {last} samples/s {between}"


def rate(samples_per_s: float) -> str:
    """As people read it: three digits at least, whole from a hundred on."""
    return f"{samples_per_s:,.0f}" if samples_per_s >= 100 else f"{samples_per_s:.3g}"  # noqa: PLR2004


def throughput_of(curve: Curve, *, after: int = 0) -> Throughput:
    """That of a training with these epochs, in order, the first ones included.

    Args:
        curve: its epochs.
        after: the epoch after which it went on from a checkpoint, maybe elsewhere: those up to it,
            and the next, are left out.
    """
    found: dict[bool, list[tuple[int, float]]] = {True: [], False: []}
    before = 0.0
    for each in curve:
        seconds, before = each.elapsed_s - before, each.elapsed_s
        if each.epoch > after + 1 and seconds > 0:
            found[each.val_loss is not None].append((each.epoch, seconds))
    # One kind is enough to tell: of a training that is validated now and then, the usual one.
    kept = max(found.values(), key=len)
    return Throughput(
        epochs=tuple(epoch for epoch, _ in kept), seconds=tuple(seconds for _, seconds in kept)
    )


def with_fall(recorded: Recorded, curve: Curve, *, windows: int, after: int) -> Recorded:
    """The record of a training that has ended, with the windows of its epochs and whether its
    throughput fell.

    Where its device was shared nothing is said: that is contamination, which has its own words.
    """
    fall = None if recorded.contaminated else throughput_of(curve, after=after).fall
    said = "" if fall is None else fall.in_words(windows)
    return dataclasses.replace(recorded, epoch_windows=windows, slowed=said)


def _from_one_to_the_next(logs: Sequence[float]) -> float:
    """Standard deviation of the noise by what neighbours differ in, whatever some of them did."""
    steps = [later - earlier for earlier, later in itertools.pairwise(logs)]
    middle = statistics.median(steps)
    deviation = statistics.median(abs(step - middle) for step in steps)
    return _OF_DEVIATION * deviation / math.sqrt(2)


def _within(group: Sequence[float]) -> float:
    """Standard deviation of a group by its mean absolute one: single slow epochs do count here, as
    of a few epochs they may be most.
    """
    middle = statistics.median(group)
    return _OF_MEDIAN * statistics.fmean(abs(each - middle) for each in group)
