"""What studies teach beside their fronts, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tuner.display.terminal import make_console, number_table
from tuner.training.evaluate import ForecastQuality, IntervalQuality, Measured
from tuner.verdict.explain import Explanation, Ranking


def print_explanations(found: Sequence[Explanation]) -> None:
    """For a person at a terminal."""
    console = make_console()
    for each in found:
        console.print(each.study, style="bold")
        if each.recommended is not None:
            console.print(f"  trial {each.recommended}. {each.why}", soft_wrap=True)
        for line in _lines(each):
            console.print(f"  {line}", soft_wrap=True)
        if each.learning_rates:
            console.print(_learning_rates(each))
        for line in each.missing:
            console.print(f"  missing: {line}")


def _lines(found: Explanation) -> list[str]:
    lines = []
    for objective, shares in found.importances.items():
        words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
        lines.append(f"what {objective} depends on: {words}")
    if found.ranking is not None:
        lines += _ranking_lines(found.ranking)
    return lines


def _learning_rates(found: Explanation) -> Table:
    counts = ("trials", "converged", f"under {found.epochs} epochs", "median epochs")
    table = number_table("learning rate", *counts)
    for rate in found.learning_rates:
        median = "-" if rate.median_epochs is None else f"{rate.median_epochs:.0f}"
        span = f"{rate.low:.1e} to {rate.high:.1e}"
        table.add_row(span, str(rate.trials), str(rate.converged), str(rate.within), median)
    return table


def _ranking_lines(ranking: Ranking) -> list[str]:
    lines = []
    if ranking.spearman is not None:
        s = ranking.spearman
        lines.append(
            f"validation and test MQL rank {ranking.trials} configurations alike to "
            f"{s.estimate:.2f} [{s.low:.2f}, {s.high:.2f}] (Spearman; 1 is the same order)"
        )
    chosen = f"validation and test choose the same trial, {ranking.by_test}"
    if ranking.by_validation != ranking.by_test:
        chosen = (
            f"validation would choose trial {ranking.by_validation}, whose test MQL is "
            f"{ranking.price:.4f} above trial {ranking.by_test}'s, the lowest"
        )
    lines.append(chosen)
    if ranking.optimism is not None:
        low = "too low (choosing on test was optimistic)"
        lines.append(
            f"against fresh seeds the search's test MQL of {ranking.verified} verified front "
            f"configurations was {ranking.optimism:+.4f} off on average: "
            f"{low if ranking.optimism < 0 else 'not too low'}"
        )
    return lines


# What `tuner train` shows of the forecasts it made on the test split: crossings and intervals.


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
    heads = ("interval", "nominal", "all", *(columns if fits else []))
    table = number_table(*heads, title="coverage of intervals (mean width)")
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
