"""Studies whose times are by other clocks than each other."""

from __future__ import annotations

from tuner.config import MqlSplit
from tuner.errors import UsageError
from tuner.spec.program import ClockLabel

_COUNTS = {
    ClockLabel.TUNER: "tuner's own loop",
    ClockLabel.PROCESS: "a program's lines as they come",
    ClockLabel.LIGHTNING: "LightningReport in a program",
    ClockLabel.HUGGINGFACE: "HuggingFaceReport in a program",
}


def refuse_other_clocks(name: str, clock: ClockLabel, other: str, of_other: ClockLabel) -> None:
    """Raises UsageError where the times of two studies are by two clocks: what one counts the other
    may not.
    """
    if clock is of_other:
        return
    raise UsageError(
        f"studies {name!r} (clock {clock.value}: {_COUNTS[clock]}) and {other!r} (clock "
        f"{of_other.value}: {_COUNTS[of_other]}) count different times, which do not compare; run "
        "both by one clock (both as programs that say the same clock under [process], or both in "
        "tuner's loop), or look at each by itself"
    )


def clock_in_words(clock: ClockLabel) -> str:
    """Whose clock it was, for a reader; empty where it was tuner's."""
    return "" if clock is ClockLabel.TUNER else f"clock {clock.value}: {_COUNTS[clock]}"


# Studies that are judged on other test windows than each other.


def refuse_other_windows(name: str, split: str, other: str, of_other: str) -> None:
    """Raises UsageError where one of two studies keeps the last block of its test split, and the
    other does not: a test MQL is not the same thing in both. `split` and `of_other` are their MQL
    splits.
    """
    if (split == MqlSplit.ORIGINS) == (of_other == MqlSplit.ORIGINS):
        return
    raise UsageError(
        f"studies {name!r} (--mql-split {split}) and {other!r} (--mql-split {of_other}) are judged "
        "on different windows of the test split: their figures do not compare"
    )
