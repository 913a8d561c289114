"""A task's targets over time, with its splits: a first look at data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.report.figures.style import GREY, finish, label, style_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_PANELS = 8
"""More would leave none of them any height."""
MOST_POINTS = 2000
"""Of a line: of each stretch its lowest and its highest value are kept."""
PANEL_PX = 110
FRAME_PX = 130
SPLIT_NAMES = ("training", "validation", "test")
_SHADES = ("#FFFFFF", "#EEF3F8", "#DCE7F1")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """One target of one series: `values` (R,) at `times` (R,), dates or row numbers; `ends` are
    the rows after the last one of training, validation and test.
    """

    title: str
    times: npt.NDArray[Any]
    values: npt.NDArray[np.float64]
    ends: tuple[int, int, int]


def targets_figure(panels: Sequence[Panel], *, title: str = "") -> go.Figure:
    """The first panels below each other, each with its own scale; the splits are shaded."""
    from plotly.subplots import make_subplots

    shown = panels[:MOST_PANELS]
    figure = make_subplots(
        rows=len(shown),
        cols=1,
        shared_xaxes=_alike(shown),
        vertical_spacing=0.25 / len(shown) if len(shown) > 1 else 0.0,
        subplot_titles=[label(panel.title) for panel in shown],
    )
    for row, panel in enumerate(shown, start=1):
        kept = thinned(panel.values, MOST_POINTS)
        figure.add_scatter(
            x=panel.times[kept],
            y=panel.values[kept],
            mode="lines",
            line={"color": style_of(0).colour, "width": 1},
            name=label(panel.title),
            showlegend=False,
            row=row,
            col=1,
        )
        _shade(figure, panel, row)
    dated = np.issubdtype(shown[0].times.dtype, np.datetime64)
    more = f" (the first {len(shown)} of {len(panels)} targets)" if len(panels) > len(shown) else ""
    finish(figure, title=f"{title}{more}", x="", y="", height=height_of(len(panels)))
    figure.update_xaxes(title="time" if dated else "row", row=len(shown), col=1)
    figure.update_annotations(font={"size": 12})
    return figure


def height_of(panels: int) -> int:
    """Pixels that so many panels need."""
    return FRAME_PX + PANEL_PX * max(2, min(panels, MOST_PANELS))


def thinned(values: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.int64]:
    """Positions, ascending, at most `most`, that keep the extremes of each stretch."""
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), most // 2 + 1).astype(np.int64)
    kept = {0, len(values) - 1}
    for first, end in pairwise(edges):
        stretch = values[first:end]
        kept |= {int(first + stretch.argmin()), int(first + stretch.argmax())}
    return np.array(sorted(kept)[:most], dtype=np.int64)


def _alike(panels: Sequence[Panel]) -> bool:
    first = panels[0].times
    return all(len(each.times) == len(first) and each.times[0] == first[0] for each in panels)


def _shade(figure: go.Figure, panel: Panel, row: int) -> None:
    """A ground for each split; the first panel names them."""
    first = 0
    for name, shade, end in zip(SPLIT_NAMES, _SHADES, panel.ends, strict=True):
        if end == first:  # a file that is all in another split
            continue
        figure.add_vrect(
            x0=panel.times[first],
            x1=panel.times[min(end, len(panel.times) - 1)],
            fillcolor=shade,
            line={"color": GREY, "width": 0.5},
            layer="below",
            row=row,
            col=1,
            **(_name(name) if row == 1 else {}),
        )
        first = end


def _name(split: str) -> dict[str, Any]:
    """The name of a split in its upper left corner, readable above a line."""
    return {
        "annotation_text": split,
        "annotation_position": "top left",
        "annotation_bgcolor": "rgba(255, 255, 255, 0.75)",
    }
