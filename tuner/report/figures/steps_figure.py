"""What each step of a rewrite cost: its factors with their intervals, one line a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.report.figures.style import (
    GREY,
    finish,
    label,
    logarithmic,
    new_figure,
    say_nothing_yet,
    style_of,
)
from tuner.verdict.compare.steps import WHAT, Row

if TYPE_CHECKING:
    import plotly.graph_objects as go

APART = 0.2
"""Of the height of a step: between its factors."""


def steps_figure(rows: Sequence[Row], *, title: str = "") -> go.Figure:
    """Factors on a logarithmic axis, the first step on top: right of 1 a step costs, left of it it
    saves. A factor that is only a bound is hollow.
    """
    figure = new_figure()
    ends: list[float] = [1.0]
    for index, (name, what) in enumerate(WHAT.items()):
        known = [(at, change) for at, row in enumerate(rows) if (change := getattr(row, name))]
        if not known:
            continue
        ends += [end for _, change in known for end in (change.low, change.high)]
        style = style_of(index)
        figure.add_scatter(
            x=[change.estimate for _, change in known],
            y=[at + APART * (index - 1) for at, _ in known],
            error_x={
                "array": [change.high - change.estimate for _, change in known],
                "arrayminus": [change.estimate - change.low for _, change in known],
                "color": style.colour,
            },
            mode="markers",
            marker={
                "color": style.colour,
                "size": 9,
                "symbol": [style.symbol + ("-open" if e.bound else "") for _, e in known],
            },
            name=f"{what}",
            text=[label(rows[at].label) for at, _ in known],
            hovertemplate="%{text}<br>%{x:.3f} x",
        )
    finish(figure, title=title, x="factor (1 changes nothing)", y="", height=160 + 70 * len(rows))
    if len(ends) == 1:
        return say_nothing_yet(figure, "too few runs on fresh seeds")
    figure.add_vline(x=1, line={"color": GREY, "width": 1.5, "dash": "dot"})
    figure.update_xaxes(logarithmic(min(ends), max(ends)))
    several = len({row.loop for row in rows}) > 1
    names = [label(row.label + (f" ({row.loop})" if several else "")) for row in rows]
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=names, range=[len(rows) - 0.5, -0.5]
    )
    return figure.update_layout(margin={"l": 40}, yaxis={"automargin": True})
