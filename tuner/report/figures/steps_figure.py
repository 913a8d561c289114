"""What each step of a rewrite cost: its factors with their intervals, one line a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.report.figures import style
from tuner.verdict.compare.steps import WHAT, Row

if TYPE_CHECKING:
    import plotly.graph_objects as go

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
