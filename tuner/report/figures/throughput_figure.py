"""Throughput over a trial's epochs, beside that of its first ones: a training that slows down falls
away from the line that all the others are on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.report.figures.curves import thinned
from tuner.report.figures.style import (
    GREY,
    finish,
    label,
    new_figure,
    note_in_corner,
    say_nothing_yet,
    style_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One trial's epochs, and the throughput of each as a multiple of that of the first ones.

    `slowed` is drawn in colour with its label; the others are faint company, one trace a label.
    """

    label: str
    epochs: Sequence[int]
    throughput: Sequence[float]
    slowed: bool = False


def throughput_figure(paces: Sequence[Pace], *, title: str = "") -> go.Figure:
    """Throughput over epochs, of each trial as a multiple of its own first epochs'."""
    figure = new_figure()
    steady = [pace for pace in paces if not pace.slowed]
    for name in dict.fromkeys(pace.label for pace in steady):
        _faint(figure, name, [pace for pace in steady if pace.label == name])
    slowed = [pace for pace in paces if pace.slowed]
    for index, pace in enumerate(slowed):
        style, kept = style_of(index), thinned(len(pace.epochs))
        figure.add_scatter(
            x=[pace.epochs[i] for i in kept],
            y=[pace.throughput[i] for i in kept],
            mode="lines+markers",
            line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.symbol, "size": 6, "maxdisplayed": 8},
            name=label(pace.label),
            hovertemplate="%{fullData.name}<br>epoch %{x}<br>%{y:.2f} of the first<extra></extra>",
        )
    if not any(pace.epochs for pace in paces):
        say_nothing_yet(figure, "no trial has three epochs yet")
    elif not slowed:
        note_in_corner(figure, "throughput fell in none of them")
    finish(figure, title=title, x="epoch", y="throughput beside the first epochs'")
    highest = sorted(each for pace in paces for each in pace.throughput)
    if highest:  # a single quick epoch is not to press all others down
        figure.update_yaxes(range=[0, 1.15 * max(1.0, highest[int(0.98 * (len(highest) - 1))])])
    return figure


def _faint(figure: go.Figure, name: str, paces: Sequence[Pace]) -> None:
    """All of them as one trace with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for pace in paces:
        kept = thinned(len(pace.epochs))
        x += [*(pace.epochs[i] for i in kept), None]
        y += [*(pace.throughput[i] for i in kept), None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": GREY, "width": 1},
        opacity=0.45,
        name=label(name),
        hoverinfo="skip",
    )
