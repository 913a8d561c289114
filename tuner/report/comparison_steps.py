"""The steps of a rewrite at a terminal, as CSV, and as one page that needs no network."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

from rich.table import Table

from tuner.display.terminal import make_console
from tuner.display.text import in_csv, in_html
from tuner.report.comparison_files import document, listed, put_text
from tuner.report.figures.steps_figure import steps_figure
from tuner.verdict.compare.steps import FIGURES, Row, StepsReport
from tuner.verdict.stats.contrasts import Change

HEADS = ("step", "backend", "runs", "s/epoch", "epochs", "total time", "test MQL")
HOW = (
    "Factors are of geometric means over fresh seeds, with 95 % intervals by Welch's t on "
    "logarithms; of the test MQL it is the difference of means."
)
ENDS = tuple(field.name for field in dataclasses.fields(Change))
PLAIN = ("kind", "before", "after", "loop")


def cells(row: Row) -> list[str]:
    """Of a row of the table, as people read it."""
    runs = ", ".join(map(str, row.runs))
    factors = [_factor(row.s_per_epoch), _factor(row.epochs), _factor(row.total_time_s)]
    mql = "-" if row.test_mql is None else f"{row.test_mql:+.4f}"
    return [row.label, ", ".join(row.backends) or "-", runs, *factors, mql]


def _factor(change: Change | None) -> str:
    if change is None:
        return "-"
    if change.bound == "unknown":
        return "unknown"
    if change.bound:
        return f"{change.bound} {change.low if change.bound == 'at least' else change.high:.3f} x"
    return f"{change:.3f} x"


def print_steps(report: StepsReport) -> None:
    """The answer first, then the table, and what to know of it."""
    console = make_console()
    console.print(report.answer, soft_wrap=True)
    if report.rows:
        table = Table(box=None, padding=(0, 1, 0, 0))
        for head in HEADS:
            table.add_column(head, overflow="fold")
        for row in report.rows:
            table.add_row(*cells(row))
        console.print()
        console.print(table)
        console.print(HOW, soft_wrap=True)
    for title, lines in _sections(report):
        if lines:
            console.print(f"\n{title}:")
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)


def _sections(report: StepsReport) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (
        ("To read this", report.notes),
        ("Not equal", report.fairness),
        ("Missing", report.missing),
    )


def write_csv(report: StepsReport, path: Path) -> None:
    """One row a step and loop; of each figure the estimate, both ends, and what holds of them.

    Raises:
        TunerError: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    heads = [f"{name}_{end}" for name in FIGURES for end in ENDS]
    writer.writerow([*PLAIN, "backends", "runs", *heads])
    for row in report.rows:
        plain = [getattr(row, name) for name in PLAIN]
        found = [" ".join(row.backends), " ".join(map(str, row.runs))]
        for name in FIGURES:
            change = getattr(row, name)
            found += ["" if change is None else getattr(change, end) for end in ENDS]
        writer.writerow(map(in_csv, [*plain, *found]))
    put_text(path, text.getvalue())


def write_html(report: StepsReport, path: Path) -> None:
    """The answer, the picture, the table, and what to know of it.

    Raises:
        TunerError: the file cannot be written.
    """
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    rows = ""
    for row in report.rows:
        rows += f"<tr>{''.join(f'<td>{in_html(text)}</td>' for text in cells(row))}</tr>"
    title = f"What each step costs on {report.task}"
    parts = [
        f"<h1>{in_html(title)}</h1><p>{in_html(report.answer)}</p>",
        steps_figure(report.rows).to_html(full_html=False),
        f"<table><tr>{heads}</tr>{rows}</table><p><small>{HOW}</small></p>",
        *(listed(heading, lines) for heading, lines in _sections(report)),
    ]
    put_text(path, document(title, parts))
