"""The steps of a rewrite at a terminal, as CSV, and as one page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tuner.display.terminal import make_console
from tuner.display.text import csv_text
from tuner.files.plain import in_json
from tuner.report.comparison_files import put_text
from tuner.report.figures import style
from tuner.report.overview import Answer
from tuner.report.pages import frozen, rendered
from tuner.verdict.compare.steps import FIGURES, MQL, WHAT, Row, StepsReport

if TYPE_CHECKING:
    import plotly.graph_objects as go


# What each step of a rewrite cost: its factors with their intervals, one line a step.


APART = 0.2
"""Of the height of a step: between its factors."""


def steps_figure(rows: Sequence[Row]) -> go.Figure:
    """Factors on a logarithmic axis, the first step on top: right of 1 a step costs, left of it it
    saves. A factor that is only a bound is hollow.
    """
    figure = style.new_figure()
    ends = [0.9, 1.1]
    for index, (name, what) in enumerate(WHAT.items()):
        look = style.style_of(index)
        known = [(at, row.changes[name]) for at, row in enumerate(rows) if name in row.changes]
        ends += [end for _, change in known for end in (change.low, change.high)]
        symbols = [look.symbol + "-open" * bool(change.bound) for _, change in known]
        above = [change.high - change.estimate for _, change in known]
        below = [change.estimate - change.low for _, change in known]
        figure.add_scatter(
            x=[change.estimate for _, change in known],
            y=[at + APART * (index - 1) for at, _ in known],
            error_x={"array": above, "arrayminus": below},
            mode="markers",
            marker={"color": look.colour, "size": 9, "symbol": symbols},
            name=what,
        )
    style.finish(figure, title="", x="factor", y="", height=160 + 70 * len(rows))
    figure.add_vline(x=1, line={"color": style.GREY, "width": 1.5, "dash": "dot"})
    figure.update_xaxes(style.logarithmic(min(ends), max(ends)))
    names = [f"{style.label(row.label)} ({row.loop})" for row in rows]
    at = list(range(len(rows)))
    lowest = len(rows) - 0.5
    return figure.update_yaxes(tickvals=at, ticktext=names, range=[lowest, -0.5], automargin=True)


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
    rows = []
    for row in report.rows:
        _, backends, runs, *_ = cells(row)
        told = in_json(row, "kind", "before", "after", "loop")
        told |= {"backends": backends, "runs": runs}
        for figure in FIGURES:
            for end in ("estimate", "low", "high", "clear", "bound"):
                told[f"{figure}_{end}"] = getattr(row.changes.get(figure), end, "")
        rows.append(told)
    put_text(path, csv_text(rows, first=("kind", "before", "after")))


def write_html(report: StepsReport, path: Path) -> None:
    """The answer, the picture, the table, and what to know of it.

    Raises:
        TunerError: the file cannot be written.
    """
    said = "Right of 1 a step costs, left of it it saves; a bar is a 95 % interval."
    page = frozen(
        f"What each step costs on {report.task}",
        one=Answer(heading=report.task, sentences=(report.answer,)),
        pictures={("What each step costs", said): steps_figure(report.rows)},
        body=rendered(
            "steps.html",
            heads=HEADS,
            rows=[cells(row) for row in report.rows],
            how=HOW,
            sections=_sections(report),
        ),
    )
    put_text(path, page)
