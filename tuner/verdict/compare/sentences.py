"""Answers in words: one plain sentence for each question."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.verdict.stats.effects import MQL, SECONDS, Comparison, Effect
from tuner.verdict.stats.power import POWER

MOST_DIGITS = 9


def sentence(answer: Comparison, a: str, b: str) -> str:
    """E.g. `retuned rmsnorm converges in 0.61 [0.55, 0.68] of the time of default rmsnorm; MQL
    +0.002 …`. What differs in quality is said to, before its time is.
    """
    if answer.mql.claimed and not answer.mql.within_margin and answer.mql.estimate is not None:
        better = "better" if answer.mql.estimate.estimate < 0 else "worse"
        time = time_phrase(answer.seconds, b)
        return (
            f"{a} forecasts {better} than {b}: {mql_phrase(answer.mql)}; at that quality it {time}"
        )
    return f"{a} {time_phrase(answer.seconds, b)}; {mql_phrase(answer.mql)}"


def time_phrase(effect: Effect, b: str) -> str:
    if effect.estimate is None:
        return f"against {b}: no verdict on time ({effect.why_not})"
    return f"converges in {_size(effect, 2, '')} of the time of {b}{_qualified(effect)}"


def mql_phrase(effect: Effect) -> str:
    if effect.estimate is None:
        return f"no verdict on MQL ({effect.why_not})"
    return f"MQL {_size(effect, 3, '+')}{_qualified(effect)}"


def resolution(answers: Iterable[Comparison]) -> str:
    """What runs like these can show at all,
    of the pair that shows least; empty where one can show nothing.
    """
    effects = [
        effect for answer in answers for effect in answer.effects if effect.estimate is not None
    ]
    ratios = [e.detectable for e in effects if e.objective == SECONDS and e.detectable is not None]
    differences = [e.detectable for e in effects if e.objective == MQL and e.detectable is not None]
    if not ratios or not differences or len(ratios) + len(differences) < len(effects):
        return ""
    return (
        f"In {POWER:.0%} of cases, runs as many and as noisy as these find a true difference of "
        f"{max(ratios):.2f} x in "
        f"time, or of {max(differences):.3f} in MQL; smaller ones are missed more often"
    )


def levels(answers: Iterable[Comparison]) -> str:
    """Of which confidence the intervals are; empty where there is none."""
    effects = [effect for answer in answers for effect in answer.effects if not effect.why_not]
    shown = sorted({100 * (1 - effect.level) for effect in effects if effect.level is not None})
    if not shown:
        return ""
    of = " to ".join(dict.fromkeys(f"{each:.4g} %" for each in (shown[0], shown[-1])))
    return (
        "Each interval is what the deciding test does not exclude, at the level that Holm's "
        f"correction gave it ({of} "
        "confidence): a difference is claimed where it leaves out no difference, and nowhere else"
    )


def _size(effect: Effect, digits: int, sign: str) -> str:
    """The estimate with the interval of its test;
    alone where there is no verdict, for which no interval speaks.

    As many digits as it takes to print that no difference is left out, where it is.
    """
    found = effect.estimate
    assert found is not None, "only what was tested has a size"
    if effect.why_not:
        return f"{found.estimate:{sign}.{digits}f}"
    while effect.claimed and digits < MOST_DIGITS and _reaches_nothing(effect, digits):
        digits += 1
    return f"{found:{sign}.{digits}f}"


def _reaches_nothing(effect: Effect, digits: int) -> bool:
    found = effect.estimate
    return found is not None and effect.nothing in (
        round(found.low, digits),
        round(found.high, digits),
    )


def _qualified(effect: Effect) -> str:
    if effect.why_not:
        return f", no verdict ({effect.why_not})"
    if effect.claimed:
        return ", yet surely close" if effect.within_margin else ""
    return f", {_undecided(effect)}"


def _undecided(effect: Effect) -> str:
    return "not distinguishable and surely close" if effect.within_margin else "not distinguishable"
