"""The steps of a rewrite at a terminal, as CSV, and as one page that needs no network."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rich.table import Table

from tuner.display.terminal import make_console
from tuner.display.text import in_csv, in_html
from tuner.report.comparison_files import document, listed, put_text
from tuner.report.figures.steps_figure import steps_figure
from tuner.verdict.compare.steps import FIGURES, MQL, Row, StepsReport

HEADS = ("step", "backend", "runs", "s/epoch", "epochs", "total time", "test MQL")
HOW = "Of geometric means over fresh seeds, with Welch's 95 % intervals; of MQLs the difference."


def cells(row: Row) -> list[str]:
    """Of a row of the table, as people read it."""
    found = [row.label, ", ".join(row.backends), ", ".join(map(str, row.runs))]
    for figure in FIGURES:
        change = row.changes.get(figure)
        of = f"{change:+.4f}" if figure == MQL else f"{change:.3f} x" if change else ""
        found.append(of if change else "-")
    return found


def _sections(report: StepsReport) -> list[tuple[str, tuple[str, ...]]]:
    lines = (report.notes, report.fairness, report.missing)
    found = zip(("To read this", "Not equal", "Missing"), lines, strict=True)
    return [pair for pair in found if pair[1]]


def print_steps(report: StepsReport) -> None:
    """The answer first, then the table, and what to know of it."""
    console = make_console()
    console.print(report.answer, soft_wrap=True)
    if report.rows:
        table = Table(*HEADS, box=None, padding=(0, 1, 0, 0))
        for row in report.rows:
            table.add_row(*cells(row))
        console.print(table, HOW, sep="\n", soft_wrap=True)
    for title, lines in _sections(report):
        console.print(f"{title}:", *(f"  {line}" for line in lines), sep="\n", soft_wrap=True)


def write_csv(report: StepsReport, path: Path) -> None:
    """One row a step and loop; of each figure the estimate, both ends, and what holds of them.

    Raises:
        TunerError: the file cannot be written.
    """
    ends = ("estimate", "low", "high", "clear", "bound")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    heads = [f"{figure}_{end}" for figure in FIGURES for end in ends]
    writer.writerow(["kind", "before", "after", "loop", "backends", "runs", *heads])
    for row in report.rows:
        found = [row.kind, row.before, row.after, row.loop, *cells(row)[1:3]]
        for figure in FIGURES:
            found += [getattr(row.changes.get(figure), end, "") for end in ends]
        writer.writerow(map(in_csv, found))
    put_text(path, text.getvalue())


def write_html(report: StepsReport, path: Path) -> None:
    """The answer, the picture, the table, and what to know of it.

    Raises:
        TunerError: the file cannot be written.
    """
    rows = "".join(f"<th>{head}</th>" for head in HEADS)
    for row in report.rows:
        rows += "<tr>" + "".join(f"<td>{in_html(text)}</td>" for text in cells(row))
    title = f"What each step costs on {report.task}"
    parts = [
        f"<h1>{in_html(title)}</h1><p>{in_html(report.answer)}</p>",
        steps_figure(report.rows).to_html(full_html=False),
        f"<table>{rows}</table><p><small>{HOW}</small></p>",
        *(listed(*section) for section in _sections(report)),
    ]
    put_text(path, document(title, parts))
