"""The report for a person at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from tuner.display.terminal import Console, lines, make_console
from tuner.display.text import shown
from tuner.report import comparison_files as files
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.rows import FIGURES

GAP = 1
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
    unverified = [row for row in report.rows if not row.verified]
    if unverified:
        one = all(row.search_runs == 1 for row in unverified)
        which = "one run of the search" if one else "medians of runs of the search"
        console.print(f"?  {which}, not verified: no ground for a verdict")
    if any(row.contaminated for row in report.rows):
        console.print(files.CONTAMINATED)
    for line in _misses(report):
        console.print(line)
    for title, found in files.sections_of(report):
        _print_lines(console, files.headed(title), found)
    figures = [f"{line}." for line in (report.intervals, report.resolution) if line]
    _print_lines(console, "", figures)
    for title, lines_ in (
        (
            "Hypervolume:",
            [files.volume_line(report, index) for index in range(len(report.volumes))],
        ),
        ("Not equal:", report.fairness),
        ("Missing for a verdict:", report.missing),
    ):
        _print_lines(console, title, lines_)


def _print_lines(console: Console, title: str, told: Sequence[str]) -> None:
    if told:
        console.print()
        if title:
            console.print(title)
    for line in told:
        console.print(("  " if title else "") + line, soft_wrap=True)


def _print_table(report: Report, console: Console) -> None:
    """The rows. Where the console is too narrow,
    intervals go below their figures, then columns are left out.
    """
    called = report.called
    rows = [
        {
            "variant": shown(called[row.study]),
            "core change": shown(row.core_change),
            "hyperparameters": row.hyperparameters + ("" if row.verified else " ?"),
            **{files.HEADINGS[name]: files.cell(row, name) for name in FIGURES},
            "verdict": row.verdict,
        }
        for row in report.rows
    ]
    left_out: list[str] = []
    if _width(rows) > console.width:
        figures = set(files.HEADINGS.values())
        rows = [
            {k: v.replace(" [", "\n[") if k in figures else v for k, v in row.items()}
            for row in rows
        ]
        for name in DISPENSABLE:
            if _width(rows) <= console.width:
                break
            left_out.append(name)
            rows = [{k: v for k, v in row.items() if k != name} for row in rows]
    table = Table(box=None, padding=(0, GAP, 0, 0))
    for heading in rows[0]:
        table.add_column(heading, overflow="fold", no_wrap=_width(rows) <= console.width)
    for each, row in zip(rows, report.rows, strict=True):
        table.add_row(*map(lines, each.values()), style="" if row.verified else "dim")
    console.print(table)
    if left_out:
        _say_what_is_left_out(console, ", ".join(left_out), where="--csv and --html")


def _say_what_is_left_out(console: Console, what: str, *, where: str) -> None:
    line = f"Left out for want of width: {what}; a wider terminal, {where} have them."
    console.print(line, soft_wrap=True)


def _width(rows: Sequence[Mapping[str, str]]) -> int:
    """Of a table of these rows, in characters."""
    return sum(
        GAP
        + max(
            len(line)
            for text in (heading, *(row[heading] for row in rows))
            for line in text.split("\n")
        )
        for heading in rows[0]
    )


def _misses(report: Report) -> list[str]:
    found = []
    for row in report.rows:
        of_it = f"{row.variant}, {row.hyperparameters}:"
        for how, count in row.misses.items():
            found.append(
                f"{of_it} {count} of {row.runs} runs missed ({how.replace('_', ' ')}); not in its "
                "figures"
            )
        if row.cut_off:
            found.append(
                f"{of_it} {row.cut_off} of {row.runs} runs were cut off by the limit of epochs; "
                "they count with what they came to"
            )
    return found
