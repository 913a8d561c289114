"""How the front grows: its hypervolume after each finished trial,
or over the time the search took.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.report.figures.style import finish, label, new_figure, say_nothing_yet, style_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


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


def hypervolume_figure(
    series: Sequence[VolumeSeries], *, over: Literal["trials", "time"] = "trials", title: str = ""
) -> go.Figure:
    """Hypervolume (seconds times MQL, all studies against one reference point) over trials, or over
    the search's time.

    The time is in hours, or in minutes or seconds where the longest search was that short.
    """
    figure = new_figure()
    unit, per_hour = _unit(
        max((hours for each in series for hours in each.hours), default=math.inf)
    )
    for index, each in enumerate(series):
        style = style_of(index)
        figure.add_scatter(
            x=list(
                each.finished if over == "trials" else [per_hour * hours for hours in each.hours]
            ),
            y=list(each.volume),
            mode="lines",
            line={"color": style.colour, "dash": style.dash, "shape": "hv", "width": 2},
            name=label(each.name),
            hovertemplate="%{x:.4g}<br>%{y:.5g}",
        )
    if not any(each.volume for each in series):
        say_nothing_yet(figure, "no trial has finished yet")
    x = "finished trials" if over == "trials" else f"time since the search began ({unit})"
    return finish(figure, title=title, x=x, y="hypervolume (s · MQL)")


def _unit(hours: float) -> tuple[str, float]:
    """The unit in which a search of so many hours is best read, and how many of it are an hour."""
    if hours > LONG_H:
        return "h", 1.0
    return ("min", 60.0) if 60 * hours > LONG_H else ("s", 3600.0)
