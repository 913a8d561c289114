"""A row of values as one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

SPARK_WIDTH = 32
"""Of a trial's curves."""
BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=*#"


def sparkline(values: Sequence[float | None], *, width: int, plain: bool = False) -> str:
    """`values` as at most `width` characters of rising height;
    `plain` for terminals without Unicode.

    More values than characters are thinned evenly, the first and the last kept. Values that are no
    finite number leave a blank.
    """
    levels = PLAIN if plain else BLOCKS
    if len(values) > width:
        values = [values[round(i * (len(values) - 1) / max(width - 1, 1))] for i in range(width)]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), max(finite) - min(finite)

    def level(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        return levels[min(int((value - low) / span * len(levels)), len(levels) - 1) if span else 0]

    return "".join(level(value) for value in values)
