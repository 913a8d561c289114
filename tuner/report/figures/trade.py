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
    """The trials of one study: epochs until early stopping, seconds an epoch, a label each; which
    are on the front.

    Labels are HTML, as plotly takes it.
    """

    name: str
    epochs: Sequence[int]
    s_per_epoch: Sequence[float]
    labels: Sequence[str]
    front: Sequence[int] = ()
    default: int | None = None


def trade_figure(series: Sequence[TradeSeries], *, title: str = "") -> go.Figure:
    """Seconds an epoch against epochs to convergence,
    both logarithmic, with lines of equal total time.
    """
    figure = style.new_figure()
    _lines_of_equal_time(figure, series)
    for index, each in enumerate(series):
        look = style.style_of(index)
        _trials(figure, each, look)
        if each.default is not None:
            at = each.epochs[each.default], each.s_per_epoch[each.default]
            hover = f"default<br>{PLACE}"
            style.draw_default(figure, at, look, study=each.name, hovertemplate=hover)
    if not any(each.epochs for each in series):
        style.say_nothing_yet(figure, "no trial has finished yet")
    style.finish(figure, title=title, x="epochs to convergence", y="seconds an epoch")
    if len(series) > style.MANY:
        style.key(figure, MARKS)
    pairs = _pairs(series)
    if pairs:
        epochs, paces = zip(*pairs, strict=True)
        figure.update_xaxes(style.logarithmic(min(epochs), max(epochs) * 1.1))
        figure.update_yaxes(style.logarithmic(min(paces), max(paces)))
    return figure


def _trials(figure: go.Figure, series: TradeSeries, look: Style) -> None:
    """All trials faint, those on the front in full."""
    on_front = set(series.front)
    groups = (
        ("trials", [i for i in range(len(series.epochs)) if i not in on_front], 7, 0.3),
        ("front", sorted(on_front), 11, 1.0),
    )
    for what, members, size, opacity in groups:
        style.draw_points(
            figure,
            [(series.epochs[i], series.s_per_epoch[i]) for i in members],
            look,
            study=series.name,
            what=what,
            marker={"size": size, "opacity": opacity},
            text=[series.labels[i] for i in members],
            hovertemplate=f"%{{text}}<br>{PLACE}",
        )


def _pairs(series: Sequence[TradeSeries]) -> list[tuple[float, float]]:
    pairs = [pair for each in series for pair in zip(each.epochs, each.s_per_epoch, strict=True)]
    return [(epochs, pace) for epochs, pace in pairs if epochs > 0 and pace > 0]


def _lines_of_equal_time(figure: go.Figure, series: Sequence[TradeSeries]) -> None:
    pairs = _pairs(series)
    if not pairs:
        return
    low, high = min(epochs for epochs, _ in pairs) / 1.3, max(epochs for epochs, _ in pairs) * 1.15
    floor = min(pace for _, pace in pairs) / 1.1
    totals = [epochs * pace for epochs, pace in pairs]
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
