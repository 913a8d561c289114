"""What studies teach beside their fronts, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tuner.display.terminal import make_console, number_table
from tuner.display.text import shown
from tuner.report.terminal.tables import fitting
from tuner.training.evaluate import ForecastQuality, Measured
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
    columns = columns if len(columns) > 1 else []
    rows = [
        {
            "interval": "{:g} to {:g}".format(*each.levels),
            "nominal": f"{each.nominal:.1%}",
            "all": _cell(each.overall),
            **{shown(name): _cell(each.by_column[name]) for name in columns},
        }
        for each in quality.intervals
    ]
    title = "coverage of intervals (mean width)"
    table = fitting(title, rows, console.width, leave_out=[*map(shown, reversed(columns))])
    console.print(table)
    if len(table.columns) < len(rows[0]):
        console.print("by target column: in the card, under metrics, forecasts")


def _cell(found: Measured) -> str:
    return f"{found.coverage:.1%} ({found.width:#.4g})"
