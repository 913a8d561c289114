"""Whether a throughput fell: of made-up trainings, steady ones and such as slow down."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from tuner.record import Recorded
from tuner.storage.queue.epochs import EpochRow
from tuner.study.throughput import LEAST, throughput_of, with_fall


def curve(seconds: Sequence[float], every: int = 1) -> list[EpochRow]:
    """Epochs that took so long, validated every so many and at the end."""
    rows, elapsed_s = [], 0.0
    for number, each in enumerate(seconds, start=1):
        elapsed_s += each
        validated = number % every == 0 or number == len(seconds)
        rows.append(EpochRow(number, 1.0, 1.0 if validated else None, 1e-3, elapsed_s))
    return rows


def steady(chance: random.Random) -> list[EpochRow]:
    """As seen on devices that a trial has to itself: noise, a slow drift of clocks, slow epochs now
    and then, a cold first one; validated each epoch or every few."""
    noise, drift = chance.choice((0.01, 0.03, 0.1, 0.2)), chance.choice((0.0, 0.02, 0.05))
    spikes, every = chance.choice((0.0, 0.02, 0.1)), chance.choice((1, 1, 2, 3, 5))
    validation, count = chance.choice((0.05, 0.3, 1.0)), chance.randint(10, 120)
    found, drifted = [], chance.gauss(0, drift)
    for epoch in range(1, count + 1):
        drifted = 0.9 * drifted + chance.gauss(0, drift * math.sqrt(1 - 0.9**2))
        seconds = math.exp(chance.gauss(0, noise) + drifted)
        seconds *= 1 + validation * (epoch % every == 0 or epoch == count)
        seconds *= chance.uniform(1.5, 5) if chance.random() < spikes else 1
        found.append(seconds * (chance.uniform(1, 6) if epoch == 1 else 1))
    return curve(found, every)


def test_of_a_thousand_steady_trainings_none_raises_an_alarm_at_its_end_or_before() -> None:
    chance = random.Random(20)
    for _ in range(1000):
        rows = steady(chance)
        looks = {len(rows), *chance.sample(range(1, len(rows)), 8)}
        falls = [throughput_of(rows[:look]).fall for look in sorted(looks)]
        assert falls == [None] * len(looks)


def slowly(share: float) -> float:
    return share


def at_once(share: float) -> float:
    return float(share > 0.5)


@pytest.mark.parametrize("how", [slowly, at_once])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_planted_falls_are_found(how: Callable[[float], float], every: int) -> None:
    """To 539 of 2,052 samples a second, as a user told, and to half: nine of ten at least."""
    chance = random.Random(7)
    for most, least in ((2052 / 539, 0.98), (2.0, 0.9)):
        found = 0
        for _ in range(200):
            count = chance.randint(48, 120)
            noise = chance.choice((0.01, 0.03, 0.1))
            seconds = [
                most ** how(epoch / (count - 1)) * math.exp(chance.gauss(0, noise))
                for epoch in range(count)
            ]
            found += throughput_of(curve(seconds, every)).fall is not None
        assert found >= least * 200


def test_a_fall_is_told_with_its_rates_and_epochs() -> None:
    rows = curve([9.0] + [1.0] * 20 + [4.0] * 20)
    fall = throughput_of(rows).fall
    assert fall is not None
    assert fall.seconds == (1.0, 4.0)
    said = "throughput fell from 2,052 to 513 samples/s between epochs 6 and 37"
    assert fall.in_words(2052) == said
    unknown = "throughput fell: an epoch went from 1 to 4 s between epochs 6 and 37"
    assert fall.in_words(None) == unknown


def test_what_gets_faster_and_what_is_too_short_says_nothing() -> None:
    assert throughput_of(curve([4.0] * 20 + [1.0] * 20)).fall is None
    short = [1.0] * (LEAST // 2) + [4.0] * (LEAST // 2)
    assert throughput_of(curve(short)).fall is None  # the first epoch does not count
    assert throughput_of(curve([1.0, *short])).fall is not None
    assert throughput_of(curve([3.0, 2.0])).ends is None
    assert throughput_of(()).ends is None


def test_a_training_that_went_on_elsewhere_is_judged_by_its_last_part() -> None:
    """A slower host is no fall, and neither is its first epoch; what falls there is one."""
    rows = curve([1.0] * 20 + [9.0] + [3.0] * 20)
    assert throughput_of(rows).fall is not None
    assert throughput_of(rows, after=20).fall is None
    assert throughput_of(curve([1.0] * 20 + [2.0] * 10 + [6.0] * 10), after=20).fall is not None


def test_epochs_with_and_without_validation_are_not_compared() -> None:
    """The share of validated ones changes within a training that keeps its pace."""
    seconds = [1.0 if epoch % 2 else 3.0 for epoch in range(1, 41)]
    found = throughput_of(curve(seconds, every=2))
    assert set(found.seconds) in ({1.0}, {3.0})
    assert found.fall is None


def test_the_record_says_it_unless_the_device_was_shared() -> None:
    rows = curve([1.0] * 10 + [4.0] * 10)
    alone = with_fall(Recorded(contaminated=False), rows, windows=100, after=0)
    said = "throughput fell from 100 to 25 samples/s between epochs 3 and 19"
    assert (alone.slowed, alone.epoch_windows) == (said, 100)
    shared = with_fall(Recorded(contaminated=True), rows, windows=100, after=0)
    assert shared.slowed == ""
    assert with_fall(Recorded(), rows, windows=100, after=10).slowed == ""
