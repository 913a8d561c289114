"""The trade an architecture makes: how long an epoch takes against how many it needs.

Their product is the time to convergence. On two logarithmic axes all pairs with the same product
lie on one straight line, so a glance says whether faster epochs paid for the additional ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.report.figures import style
from tuner.report.figures.style import GREY, Style
from tuner.spec.pareto import Point

if TYPE_CHECKING:
    import plotly.graph_objects as go

LINES = 6
PLACE = "%{x} epochs of %{y:.3g} s<extra></extra>"
MARKS = (
    (": trials", "faint: trials", {"opacity": 0.4, "size": 7}),
    (": default", "star: default hyperparameters", {"symbol": "star", "size": 13}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TradeSeries:
    """The trials of one study: (epochs until early stopping, seconds an epoch), neither of them 0,
    and a label each; which are on the front.

    Labels are HTML, as plotly takes it.
    """

    name: str
    points: Sequence[Point]
    labels: Sequence[str]
    front: Sequence[int] = ()
    default: int | None = None
    variant: str = ""


def trade_figure(series: Sequence[TradeSeries]) -> go.Figure:
    """Seconds an epoch against epochs to convergence,
    both logarithmic, with lines of equal total time.
    """
    figure = style.new_figure()
    points = [point for each in series for point in each.points]
    if points:
        _lines_of_equal_time(figure, points)
    for each, look in zip(series, style.looks([s.variant or s.name for s in series]), strict=True):
        _trials(figure, each, look)
        if each.default is not None:
            at, hover = each.points[each.default], f"default<br>{PLACE}"
            style.draw_default(figure, at, look, study=each.name, hovertemplate=hover)
    style.finish(figure, x="epochs to convergence", y="seconds an epoch")
    if len(series) > style.MANY:
        style.key(figure, MARKS)
    if not points:
        return style.say_nothing_yet(figure, "no trial has finished yet")
    epochs, paces = zip(*points, strict=True)
    figure.update_xaxes(style.logarithmic(min(epochs), max(epochs) * 1.1))
    figure.update_yaxes(style.logarithmic(min(paces), max(paces)))
    return figure


def _trials(figure: go.Figure, series: TradeSeries, look: Style) -> None:
    """All trials faint, those on the front in full."""
    on_front = set(series.front)
    groups = (
        ("trials", [i for i in range(len(series.points)) if i not in on_front], 7, 0.3),
        ("front", sorted(on_front), 11, 1.0),
    )
    for what, members, size, opacity in groups:
        style.draw_points(
            figure,
            [series.points[i] for i in members],
            look,
            study=series.name,
            what=what,
            marker={"size": size, "opacity": opacity},
            text=[series.labels[i] for i in members],
            hovertemplate=f"%{{text}}<br>{PLACE}",
        )


def _lines_of_equal_time(figure: go.Figure, points: Sequence[Point]) -> None:
    low = min(epochs for epochs, _ in points) / 1.3
    high = max(epochs for epochs, _ in points) * 1.15
    floor = min(pace for _, pace in points) / 1.1
    totals = [epochs * pace for epochs, pace in points]
    marks = style.marks_for(min(totals), max(totals))
    rounds = style.round_numbers(min(totals), max(totals), mantissas=marks)
    for total in rounds[:: math.ceil(len(rounds) / LINES)]:
        end = min(high, total / floor)  # where the line leaves the picture, to the right or below
        figure.add_scatter(
            x=[low, end],
            y=[total / low, total / end],
            mode="lines",
            line={"color": GREY, "width": 1, "dash": "dot"},
            showlegend=False,
            hoverinfo="skip",
        )
        figure.add_annotation(
            x=math.log10(end),
            y=math.log10(total / end),
            text=f"{total:g} s",
            showarrow=False,
            xanchor="left",
            yanchor="middle" if end == high else "bottom",
            font={"color": GREY, "size": 11},
        )
