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
from tuner.verdict.compare.steps import FIGURES, MQL, Row, StepsReport
from tuner.verdict.stats.contrasts import Change

HEADS = ("step", "backend", "runs", "s/epoch", "epochs", "total time", "test MQL")
HOW = (
    "Factors are of geometric means over fresh seeds, with 95 % intervals by Welch's t on "
    "logarithms; of the test MQL it is the difference of means."
)


def cells(row: Row) -> list[str]:
    """Of a row of the table, as people read it."""
    found = [row.label, ", ".join(row.backends), ", ".join(map(str, row.runs))]
    for figure in FIGURES:
        change = row.changes.get(figure)
        of = f"{change:+.4f}" if figure == MQL else f"{change:.3f} x" if change else ""
        found.append(of if change else "-")
    return found


def _sections(report: StepsReport) -> list[tuple[str, tuple[str, ...]]]:
    titles = ("To read this", "Not equal", "Missing")
    lines = (report.notes, report.fairness, report.missing)
    return [pair for pair in zip(titles, lines, strict=True) if pair[1]]


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
    plain = [each.name for each in dataclasses.fields(Row) if each.name != "changes"]
    ends = [each.name for each in dataclasses.fields(Change)]
    text = io.StringIO(newline="")
    heads = [*plain, *(f"{figure}_{end}" for figure in FIGURES for end in ends)]
    writer = csv.DictWriter(text, heads)
    writer.writeheader()
    for row in report.rows:
        found = {name: getattr(row, name) for name in plain}
        for figure, change in row.changes.items():
            found |= {f"{figure}_{end}": getattr(change, end) for end in ends}
        for name in ("backends", "runs"):
            found[name] = " ".join(map(str, found[name]))
        writer.writerow({name: in_csv(value) for name, value in found.items()})
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
