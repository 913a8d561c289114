"""The report for a person at a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.display.terminal import Console, make_console
from tuner.display.text import shown
from tuner.report import comparison_files as files
from tuner.report.terminal.tables import fitting, width_of
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.rows import FIGURES

DISPENSABLE = ("core change", "verdict", "val loss", "s/epoch")
"""What a narrow terminal does without, the first ones first: `tuner variants` and the sentences say
two of them."""


MORE = "Details: the same command with --details."


def print_answer(report: Report) -> None:
    """What it comes to, and where the rest is."""
    console = make_console()
    for each in (*report.answer, MORE):
        console.print(each, soft_wrap=True)


def print_report(report: Report) -> None:
    """Table, sentences, hypervolumes, then what is unequal and what is missing."""
    console = make_console()
    if report.rows:
        _print_table(report, console)
    told: dict[str, list[str]] = {}
    for row in report.rows:
        for note in files.notes_on(row):
            told.setdefault(note, []).append(f"{report.called[row.study]}, {row.hyperparameters}")
    for note, whose in told.items():
        console.print(f"{note}: {'; '.join(whose)}", soft_wrap=True)
    console.print()
    print_sections(files.sections_of(report), console)


def print_sections(sections: Sequence[tuple[str, Sequence[str]]], console: Console) -> None:
    """Lines below their titles, and a blank one below them."""
    for title, told in sections:
        console.print(title if title.endswith("?") else f"{title}:")
        for line in told:
            console.print(f"  {line}", soft_wrap=True)
        console.print()


def _print_table(report: Report, console: Console) -> None:
    """The rows. Where the console is too narrow,
    intervals go below their figures, then columns are left out.
    """
    called, rows = report.called, []
    for row in report.rows:
        named = {"variant": shown(called[row.study]), "core change": shown(row.core_change)}
        named["hyperparameters"] = row.hyperparameters + ("" if row.verified else " ?")
        figures = {files.HEADINGS[name]: files.cell(row, name) for name in FIGURES}
        rows.append({**named, **figures, "verdict": row.verdict})
    if width_of(rows) > console.width:
        for each in rows:
            for name in files.HEADINGS.values():
                each[name] = each[name].replace(" [", "\n[")
    faint = [not row.verified for row in report.rows]
    table = fitting("", rows, console.width, leave_out=DISPENSABLE, faint=faint)
    console.print(table)
    kept = [column.header for column in table.columns]
    if left_out := [name for name in DISPENSABLE if name not in kept]:
        line = f"Left out for want of width: {', '.join(left_out)}; a wider terminal, "
        console.print(f"{line}--csv and --html have them.", soft_wrap=True)
