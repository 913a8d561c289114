"""How the front grows: its hypervolume after each finished trial, or over the time the search took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tuner.plots.style import finish, new_figure, say_nothing_yet, style_of

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSeries:
    """One study's search: after each finished trial, how many had finished, how long it had taken, the hypervolume."""

    name: str
    finished: Sequence[int]
    hours: Sequence[float]
    volume: Sequence[float]


def hypervolume_figure(
    series: Sequence[VolumeSeries], *, over: Literal["trials", "time"] = "trials", title: str = ""
) -> go.Figure:
    """Hypervolume (seconds times MQL, all studies against one reference point) over trials or over hours of search."""
    figure = new_figure()
    for index, each in enumerate(series):
        style = style_of(index)
        figure.add_scatter(
            x=list(each.finished if over == "trials" else each.hours),
            y=list(each.volume),
            mode="lines",
            line={"color": style.colour, "dash": style.dash, "shape": "hv", "width": 2},
            name=each.name,
            hovertemplate="%{x:.4g}<br>%{y:.5g}",
        )
    if not any(each.volume for each in series):
        say_nothing_yet(figure, "no trial has finished yet")
    x = "finished trials" if over == "trials" else "time since the search began (h)"
    return finish(figure, title=title, x=x, y="hypervolume (s · MQL)")
