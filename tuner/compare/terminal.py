"""The report for a person at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tuner.compare.files import HEADINGS, cell, volume_line
from tuner.compare.report import Report
from tuner.compare.table import FIGURES


def print_report(report: Report) -> None:
    """Table, sentences, hypervolumes, then what is unequal and what is missing."""
    console = Console()
    table = Table(box=None, padding=(0, 1, 0, 0))
    for heading in ("variant", "core change", "hyperparameters", *(HEADINGS[name] for name in FIGURES), "verdict"):
        table.add_column(heading, overflow="fold")
    for row in report.rows:
        mark = "" if row.verified else " ?"
        table.add_row(
            row.variant,
            row.core_change,
            row.hyperparameters + mark,
            *(cell(row, name) for name in FIGURES),
            row.verdict,
            style="" if row.verified else "dim",
        )
    if report.rows:
        console.print(table)
    if any(not row.verified for row in report.rows):
        console.print("?  one run of the search, not verified: no ground for a verdict", highlight=False)
    for line in _misses(report):
        console.print(line, highlight=False)
    for title, lines in (
        ("", [f"{answer.sentence}." for answer in report.answers]),
        ("Hypervolume:", [volume_line(report, index) for index in range(len(report.volumes))]),
        ("Not equal:", report.fairness),
        ("Missing for a verdict:", report.missing),
    ):
        if lines:
            console.print()
            if title:
                console.print(title)
        for line in lines:
            console.print(("  " if title else "") + line, highlight=False, soft_wrap=True, markup=False)


def _misses(report: Report) -> list[str]:
    return [
        f"{row.variant}, {row.hyperparameters}: {count} of {row.runs} runs missed ({how.replace('_', ' ')}); "
        "not in its figures"
        for row in report.rows
        for how, count in row.misses.items()
    ]
