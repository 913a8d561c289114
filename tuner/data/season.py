"""How many rows the season of a frequency has: the cycle that a naive forecast repeats."""

from __future__ import annotations

DAY_S = 86_400
_ROWS = {"D": 7, "B": 5, "W": 52, "MS": 12, "ME": 12, "QS": 4, "QE": 4}
"""Of calendar frequencies: a week of days, a year of weeks, months or quarters."""


def season_rows(frequency: str) -> int | None:
    """Rows of a day for what is finer than one, of a week for days, of a year for what is coarser;
    None where nothing of the kind is known.

    Args:
        frequency: a pandas alias, such as `h`, `15min`, `D`, `W-SUN`.
    """
    if frequency == "h":
        return 24
    import pandas as pd

    offset = pd.tseries.frequencies.to_offset(frequency)
    name = offset.rule_code.partition("-")[0]
    if isinstance(offset, pd.tseries.offsets.Tick):
        step_s = offset.nanos / 1e9
        if step_s < DAY_S:
            rows = DAY_S / step_s
            return round(rows) if rows.is_integer() else None
        return _ROWS["D"] if step_s == DAY_S else None
    return _ROWS.get(name) if offset.n == 1 else None
