"""Learning curves: the validation loss of trials, over epochs or over their clocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.report.figures.style import (
    GREY,
    finish,
    label,
    logarithmic,
    new_figure,
    say_nothing_yet,
    style_of,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_POINTS = 150
"""Points kept of one curve: more are not told apart, and a browser has to carry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One trial's training. `emphasis` is drawn in colour with its name;
    the others are faint company.

    `losses` are validation losses on scaled values; None where an epoch had none that is a number.
    """

    label: str
    epochs: Sequence[int]
    elapsed_s: Sequence[float]
    losses: Sequence[float | None]
    emphasis: bool = False


def curves_figure(
    curves: Sequence[Curve], *, over: Literal["epochs", "time"] = "epochs", title: str = ""
) -> go.Figure:
    """Validation loss over epochs, or over seconds of the trial's clock;
    the loss is on a logarithmic axis.
    """
    figure = new_figure()
    faint = [curve for curve in curves if not curve.emphasis]
    if faint:
        _faint(figure, faint, over=over)
    for index, curve in enumerate(each for each in curves if each.emphasis):
        style = style_of(index)
        kept = thinned(len(curve.losses))
        figure.add_scatter(
            x=[_x(curve, over)[i] for i in kept],
            y=[curve.losses[i] for i in kept],
            mode="lines+markers",
            line={"color": style.colour, "dash": style.dash, "width": 2},
            marker={"symbol": style.symbol, "size": 6, "maxdisplayed": 8},
            name=label(curve.label),
            hovertemplate="%{fullData.name}<br>%{x:.4g}<br>loss %{y:.4f}<extra></extra>",
        )
    if not any(curve.losses for curve in curves):
        say_nothing_yet(figure, "no epoch has finished yet")
    x = "epoch" if over == "epochs" else "the trial's clock (s)"
    finish(figure, title=title, x=x, y="validation loss (scaled values)")
    _frame(figure, curves, over=over)
    return figure


def _frame(figure: go.Figure, curves: Sequence[Curve], *, over: Literal["epochs", "time"]) -> None:
    """Look at what is drawn in colour and down to the lowest: a slow trial would press all others
    into a corner.
    """
    framed = [curve for curve in curves if curve.emphasis] or curves
    losses, everything = (_losses(each) for each in (framed, curves))
    ends = [_x(curve, over)[-1] for curve in framed if curve.losses]
    if losses:
        figure.update_yaxes(logarithmic(min(everything), max(losses)))
        figure.update_xaxes(range=[0, max(ends) * 1.1])


def _losses(curves: Sequence[Curve]) -> list[float]:
    return [
        loss
        for curve in curves
        for loss in curve.losses
        if loss is not None and 0 < loss < math.inf
    ]


def _faint(figure: go.Figure, curves: Sequence[Curve], *, over: Literal["epochs", "time"]) -> None:
    """All of them as one trace with gaps: hundreds of traces make a browser slow."""
    x: list[float | None] = []
    y: list[float | None] = []
    for curve in curves:
        kept = thinned(len(curve.losses))
        x += [*(_x(curve, over)[i] for i in kept), None]
        y += [*(curve.losses[i] for i in kept), None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": GREY, "width": 1},
        opacity=0.45,
        name="other trials",
        hoverinfo="skip",
    )


def _x(curve: Curve, over: Literal["epochs", "time"]) -> Sequence[float]:
    return curve.epochs if over == "epochs" else curve.elapsed_s


def thinned(length: int) -> list[int]:
    """Which points to keep: every one, or evenly spread
    ones with the first and the last among them.
    """
    if length <= MAX_POINTS:
        return list(range(length))
    step = (length - 1) / (MAX_POINTS - 1)
    return sorted({round(i * step) for i in range(MAX_POINTS)})
