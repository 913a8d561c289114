"""Learning curves: the validation loss of trials, over epochs or over their clocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tuner.report.figures import style
from tuner.report.figures.style import GREY, Style, label

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
    variant: str = ""
    """Whose colour it has; by its label where none is said."""
    role: Literal["default", "recommended", ""] = ""


LINES: dict[str, dict[str, Any]] = {
    "default": {"width": 2, "dash": "dash"},
    "recommended": {"width": 3.5, "dash": "solid"},
}
"""How a curve is drawn that decides; others of the front are thin, with a dash each."""


def curves_figure(
    curves: Sequence[Curve], *, over: Literal["epochs", "time"] = "epochs"
) -> go.Figure:
    """Validation loss over epochs, or over seconds of the trial's clock;
    the loss is on a logarithmic axis.
    """
    figure = style.new_figure()
    faint = [(_x(curve, over), curve.losses) for curve in curves if not curve.emphasis]
    if faint:
        _faint(figure, faint, "other trials")
    emphasised = [each for each in curves if each.emphasis]
    looks = style.looks([each.variant or each.label for each in emphasised])
    for curve, look in zip(emphasised, looks, strict=True):
        hover = "%{fullData.name}<br>%{x:.4g}<br>loss %{y:.4f}<extra></extra>"
        line = LINES.get(curve.role, {"width": 1.2, "dash": look.dash})
        _in_colour(figure, look, line, _x(curve, over), curve.losses, curve.label, hover)
    if not any(curve.losses for curve in curves):
        style.say_nothing_yet(figure, "no epoch has finished yet")
    x = "epoch" if over == "epochs" else "the trial's clock (s)"
    style.finish(figure, x=x, y="validation loss (scaled values)")
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
        figure.update_yaxes(style.logarithmic(min(everything), max(losses)))
        figure.update_xaxes(range=[0, max(ends) * 1.1])


def _losses(curves: Sequence[Curve]) -> list[float]:
    return [
        loss
        for curve in curves
        for loss in curve.losses
        if loss is not None and 0 < loss < math.inf
    ]


def _in_colour(
    figure: go.Figure,
    look: Style,
    line: dict[str, Any],
    across: Sequence[float],
    up: Sequence[float | None],
    name: str,
    hover: str,
) -> None:
    kept = style.spread(len(up), MAX_POINTS)
    figure.add_scatter(
        x=[across[i] for i in kept],
        y=[up[i] for i in kept],
        mode="lines+markers",
        line={"color": look.colour} | line,
        marker={"symbol": look.symbol, "size": 6, "maxdisplayed": 8, "color": look.colour},
        name=label(name),
        hovertemplate=hover,
    )


def _faint(
    figure: go.Figure, lines: Iterable[tuple[Sequence[float], Sequence[float | None]]], name: str
) -> None:
    """All of them as one trace with gaps: hundreds of traces make a browser slow."""
    x: list[float | None] = []
    y: list[float | None] = []
    for across, up in lines:
        kept = style.spread(len(up), MAX_POINTS)
        x += [*(across[i] for i in kept), None]
        y += [*(up[i] for i in kept), None]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": GREY, "width": 1},
        opacity=0.45,
        name=name,
        hoverinfo="skip",
    )


def _x(curve: Curve, over: Literal["epochs", "time"]) -> Sequence[float]:
    return curve.epochs if over == "epochs" else curve.elapsed_s


# Throughput over a trial's epochs, beside that of its first ones: a training that slows down
# falls away from the line that all the others are on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One trial's epochs, and the throughput of each as a multiple of that of the first ones.

    `slowed` is drawn in colour with its label; the others are faint company, one trace a label.
    """

    label: str
    epochs: Sequence[int]
    throughput: Sequence[float]
    slowed: bool = False


def throughput_figure(paces: Sequence[Pace]) -> go.Figure:
    """Throughput over epochs, of each trial as a multiple of its own first epochs'."""
    figure = style.new_figure()
    steady = [pace for pace in paces if not pace.slowed]
    for name in dict.fromkeys(pace.label for pace in steady):
        alike = [(pace.epochs, pace.throughput) for pace in steady if pace.label == name]
        _faint(figure, alike, label(name))
    slowed = [pace for pace in paces if pace.slowed]
    for index, pace in enumerate(slowed):
        hover = "%{fullData.name}<br>epoch %{x}<br>%{y:.2f} of the first<extra></extra>"
        look = style.style_of(index)
        line = {"width": 2, "dash": look.dash}
        _in_colour(figure, look, line, pace.epochs, pace.throughput, pace.label, hover)
    if not any(pace.epochs for pace in paces):
        style.say_nothing_yet(figure, "no trial has three epochs yet")
    elif not slowed:
        style.note_in_corner(figure, "throughput fell in none of them")
    style.finish(figure, x="epoch", y="throughput beside the first epochs'")
    highest = sorted(each for pace in paces for each in pace.throughput)
    if highest:  # a single quick epoch is not to press all others down
        figure.update_yaxes(range=[0, 1.15 * max(1.0, highest[int(0.98 * (len(highest) - 1))])])
    return figure


# How the front grows: its hypervolume after each finished trial, or over the time the search
# took.


LONG_H = 2.0
"""A search of more hours is shown in hours; one of more minutes than this in minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSeries:
    """One study's search: after each finished trial,
    how many had finished, how long it had taken, the hypervolume.
    """

    name: str
    finished: Sequence[int]
    hours: Sequence[float]
    volume: Sequence[float]
    variant: str = ""


def hypervolume_figure(
    series: Sequence[VolumeSeries], *, over: Literal["trials", "time"] = "trials"
) -> go.Figure:
    """Hypervolume (seconds times MQL, all studies against one reference point) over trials, or over
    the search's time.

    The time is in hours, or in minutes or seconds where the longest search was that short.
    """
    figure = style.new_figure()
    longest = max((hours for each in series for hours in each.hours), default=math.inf)
    unit, per_hour = _unit(longest)
    for each, look in zip(series, style.looks([s.variant or s.name for s in series]), strict=True):
        passed = [per_hour * hours for hours in each.hours]
        figure.add_scatter(
            x=list(each.finished) if over == "trials" else passed,
            y=list(each.volume),
            mode="lines",
            line={"color": look.colour, "dash": look.dash, "shape": "hv", "width": 2},
            name=label(each.name),
            hovertemplate="%{x:.4g}<br>%{y:.5g}",
        )
    if not any(each.volume for each in series):
        style.say_nothing_yet(figure, "no trial has finished yet")
    x = "finished trials" if over == "trials" else f"time since the search began ({unit})"
    return style.finish(figure, x=x, y="hypervolume (s · MQL)")


def _unit(hours: float) -> tuple[str, float]:
    """The unit in which a search of so many hours is best read, and how many of it are an hour."""
    if hours > LONG_H:
        return "h", 1.0
    return ("min", 60.0) if 60 * hours > LONG_H else ("s", 3600.0)
