"""What `tuner train` shows of the forecasts it made on the test split: crossings and intervals."""

from __future__ import annotations

from rich.table import Table

from tuner.display.terminal import make_console
from tuner.training.forecast_quality import ForecastQuality, IntervalQuality, Measured

HEAD_WIDTH, CELL_WIDTH = 36, 18
"""Characters of what stands before the target columns, and of each of these."""


def print_forecast_quality(quality: ForecastQuality) -> None:
    """How many rows crossed, then a line for each interval: coverage (mean width) over all target
    columns, and by column where the terminal is wide enough.
    """
    console = make_console()
    console.print(
        f"test forecasts: {quality.crossed:.2%} of {quality.rows} rows had quantiles that cross; "
        "saved models sort them"
    )
    if not quality.intervals:
        return
    columns = list(quality.intervals[0].by_column)
    fits = len(columns) > 1 and HEAD_WIDTH + CELL_WIDTH * len(columns) <= console.width
    table = Table(
        title="coverage of intervals (mean width)",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for name in ("interval", "nominal", "all", *(columns if fits else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for interval in quality.intervals:
        table.add_row(*_cells(interval, columns if fits else []))
    console.print(table)
    if len(columns) > 1 and not fits:
        console.print("by target column: in the card, under metrics, forecasts")


def _cells(interval: IntervalQuality, columns: list[str]) -> list[str]:
    low, high = interval.levels
    return [
        f"{low:g} to {high:g}",
        f"{interval.nominal:.1%}",
        _cell(interval.overall),
        *(_cell(interval.by_column[name]) for name in columns),
    ]


def _cell(found: Measured) -> str:
    return f"{found.coverage:.1%} ({found.width:#.4g})"
