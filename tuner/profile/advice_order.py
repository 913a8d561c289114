"""What is named first: the order of advice, and the bottleneck in one sentence."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tuner.devices import Watch
from tuner.profile.profile_records import (
    LEAST_GAIN,
    Advice,
    Busy,
    Operations,
    Pace,
    Profile,
    Stages,
    Trend,
)
from tuner.training.stage_marks import Stage

# Whether throughput falls while nothing about the work should change.


LEAST_FALL = 0.15
"""Of the throughput at the beginning: less is what machines do."""

CERTAIN = 0.005
"""Largest p of Kendall's test against no trend: stretches that differ at random have none."""

FEWEST = 10
"""Stretches, without which nothing is said."""


SETTLE = 8
"""Steps before the first that is timed."""


def trend_of(ticks: Sequence[float], steps: int) -> Trend:
    """Of seconds a step, from start to end.

    Args:
        ticks: the mean of each of equal stretches.
        steps: all of them together.

    Source: Kendall's rank correlation with time, and the Theil-Sen slope, which one slow stretch
    does not move.
    """
    if len(ticks) < FEWEST:
        return Trend(seconds=tuple(ticks), steps=steps)
    from scipy.stats import kendalltau, theilslopes

    part = max(2, len(ticks) // 5)
    begin, end = statistics.median(ticks[:part]), statistics.median(ticks[-part:])
    fall = 1 - begin / end if end > 0 else 0.0
    found = kendalltau(range(len(ticks)), ticks)
    falls = bool(fall >= LEAST_FALL and found.statistic > 0 and found.pvalue <= CERTAIN)
    slope = float(theilslopes(ticks).slope) / (steps / len(ticks)) if falls else 0.0
    return Trend(
        seconds=tuple(ticks), fall=max(0.0, fall), falls=falls, growth_s=slope, steps=steps
    )


def without_the_fall(trend: Trend, steps: int) -> tuple[float, float]:
    """Seconds that so many steps take from the start as they are, and at the first step's pace."""
    ticks = trend.seconds
    part = max(2, len(ticks) // 5)
    begin = statistics.median(ticks[:part])
    # From the beginning, not from the middle: what the slope is off counts for fewer steps.
    before = trend.steps * part / len(ticks) / 2 + SETTLE
    first = max(begin - trend.growth_s * before, begin * 0.01)
    return steps * first + trend.growth_s * steps**2 / 2, steps * first


BETWEEN = "What lies between the stages, the loop itself,"

WAITING = 0.5
"""Of a step without a kernel on the GPU: then it waits for the host."""


Tell = Callable[[Profile], None]
"""Gets a profile each time that more of it is measured: whoever stops it keeps what there is."""


def silent(_profile: Profile) -> None:
    """Of a profile that nobody waits for."""


def told(now: Profile, watch: Watch, tell: Tell) -> Profile:
    """As far as it is measured: with what follows from that."""
    order = ranked(now.advice)
    found = replace(
        now,
        advice=order,
        bottleneck=bottleneck(order, now.stages, now.operations, now.pace),
        contamination=watch.finish().why,
    )
    tell(found)
    return found


def ranked(advice: Iterable[Advice]) -> tuple[Advice, ...]:
    """Faults of the code first, then settings, each by what they give; then what gives nothing.

    A fault is there to be repaired; a setting that changes the mathematics is a choice, also where
    it gives more. A fault whose remedy could not be timed here stands with the faults; one whose
    remedy was timed and gives nothing stands with what gives nothing.
    """

    def place(each: Advice) -> tuple[int, float]:
        gain = each.gain or 0.0
        if each.fault and not each.mathematics and (each.gain is None or each.helps):
            return (0, -gain)
        if each.helps:
            return (1, -gain)
        return (2, -gain)

    return tuple(sorted(advice, key=place))


def bottleneck(
    advice: Sequence[Advice],
    stages: Stages,
    operations: Operations,
    pace: Pace,
) -> str:
    """One sentence: what is wrong, or else what takes the time."""
    first = advice[0] if advice else None
    if first is not None and first.fault and (first.gain is None or first.helps):
        gain = f", for {first.gain:.2f} times the speed" if first.gain is not None else ""
        return f"{_sentence(first.why)}: {first.change}{gain}."
    waits = waiting_share(operations, pace)
    if waits is not None and waits >= WAITING:
        return f"The GPU has nothing to do in {waits:.0%} of a step: it waits for the host."
    longest = max(stages.seconds, key=lambda stage: stages.seconds[stage], default=Stage.OTHER)
    name = BETWEEN if longest is Stage.OTHER else longest.value.capitalize()
    said = f"{name} takes {stages.share(longest):.0%} of an epoch"
    if first is not None and first.helps:
        return f"{said}; {first.change} helps most, for {first.gain:.2f} times the speed."
    tried = any(each.gain is not None for each in advice)
    return f"{said}, and nothing that was tried helps." if tried else f"{said}."


def waiting_share(operations: Operations, pace: Pace) -> float | None:
    """Of a step on a GPU, in which no kernel runs; None on a CPU."""
    if operations.kernel_s is None or not pace.step_s:
        return None
    return max(0.0, 1 - operations.kernel_s / pace.step_s)


def of_falling(trend: Trend, epoch_steps: int) -> Advice | None:
    """The fault that throughput falls; None where it does not."""
    if not trend.falls:
        return None

    falling_s, steady_s = without_the_fall(trend, epoch_steps or trend.steps)
    gain = falling_s / steady_s
    return Advice(
        change="find what grows from step to step: a list, a graph that is kept, a log, a cache",
        why=f"throughput falls by {trend.fall:.0%} within {trend.steps} steps",
        fault=True,
        gain=max(gain, LEAST_GAIN),
        epoch_s=steady_s,
        outcome="reckoned from the first steps' pace, for the first epoch",
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def busy_words(busy: Busy) -> str:
    """`GPU 38 %, process 104 % of a core`."""
    gpu = "" if busy.gpu is None else f"GPU {busy.gpu:.0f} %, "
    return f"{gpu}process {busy.process or 0:.0f} % of a core"
