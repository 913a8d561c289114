"""What is expected of a configuration, and how surely, in words."""

from __future__ import annotations

from tuner.verdict.runs_model import Estimate

_MOST_SAID = 0.99


def in_words(estimate: Estimate) -> str:
    """A configuration and what is expected of it."""
    return f"trial {estimate.trial} (expected {estimate.seconds:.3f} s, MQL {estimate.mql:.4f})"


def too_few_runs(estimate: Estimate, sure_enough: float, least: int) -> str:
    """That a configuration is as good, surely enough, and has run less often than it takes; empty
    where it is not so.
    """
    if estimate.runs >= least or estimate.chance < sure_enough:
        return ""
    times = "once" if estimate.runs == 1 else f"{estimate.runs} times"
    return f", but it ran {times}, and {least} runs of it are needed"


def percent(chance: float) -> str:
    """A chance for a reader, who is never told that something is certain."""
    if chance > _MOST_SAID:
        return "more than 99 %"
    return "less than 1 %" if chance < 1 - _MOST_SAID else f"{100 * chance:.0f} %"


def limit_in_words(epochs: int | None) -> str:
    """Of a default that is cut off after so many, to be added to it; empty of None."""
    return "" if epochs is None else f" as its limit of {epochs} epochs leaves it"
