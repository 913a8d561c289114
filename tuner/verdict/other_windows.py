"""Studies that are judged on other test windows than each other."""

from __future__ import annotations

from tuner.config import MqlSplit
from tuner.errors import UsageError


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
