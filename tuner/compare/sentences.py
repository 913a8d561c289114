"""Answers in words: one plain sentence for each question."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.stats import Comparison, Effect, Interval
from tuner.stats.pairs import MQL, SECONDS
from tuner.stats.power import POWER


def sentence(answer: Comparison, a: str, b: str) -> str:
    """E.g. `retuned rmsnorm converges in 0.61 [0.55, 0.68] of the time of retuned original; MQL +0.002 …`."""
    return f"{a} {time_phrase(answer.seconds, b)}; {mql_phrase(answer.mql)}"


def time_phrase(effect: Effect, b: str) -> str:
    if effect.estimate is None:
        return f"against {b}: no verdict on time ({effect.why_not})"
    size = in_brackets(effect.estimate, ".2f")
    return f"converges in {size} of the time of {b}{_qualified(effect)}"


def mql_phrase(effect: Effect) -> str:
    if effect.estimate is None:
        return f"no verdict on MQL ({effect.why_not})"
    return f"MQL {in_brackets(effect.estimate, '+.3f')}{_qualified(effect)}"


def short(answer: Comparison) -> str:
    """The same for a table's cell: what it takes of the other's time, and what it gains or loses in MQL."""
    time, mql = answer.effects
    parts = []
    if time.estimate is not None:
        parts.append(f"{time.estimate.estimate:.2f} x the time" if time.claimed else "time: not distinguishable")
    if mql.estimate is not None:
        parts.append(f"MQL {mql.estimate.estimate:+.3f}" if mql.claimed else "MQL: not distinguishable")
    return "; ".join(parts) or "no verdict"


def resolution(answers: Iterable[Comparison]) -> str:
    """What runs like these can show at all, of the pair that shows least; empty where one can show nothing."""
    effects = [effect for answer in answers for effect in answer.effects if effect.estimate is not None]
    ratios = [e.detectable for e in effects if e.objective == SECONDS and e.detectable is not None]
    differences = [e.detectable for e in effects if e.objective == MQL and e.detectable is not None]
    if not ratios or not differences or len(ratios) + len(differences) < len(effects):
        return ""
    return (
        f"In {POWER:.0%} of cases, runs as many and as noisy as these find a true difference of {max(ratios):.2f} x in "
        f"time, or of {max(differences):.3f} in MQL; smaller ones are missed more often"
    )


def in_brackets(found: Interval, form: str) -> str:
    return f"{found.estimate:{form}} [{found.low:{form}}, {found.high:{form}}]"


def _qualified(effect: Effect) -> str:
    if effect.claimed:
        return ""
    if effect.why_not:
        return f", no verdict ({effect.why_not})"
    close = " and surely close" if effect.within_margin else ""
    return f", not distinguishable{close}"
