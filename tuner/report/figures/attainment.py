"""What whole searches attain: of each group the surfaces of its best, median and worst search, and
where the searches of one group attain more often than those of another.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.display.text import in_html
from tuner.pareto import Point
from tuner.report.figures.front import WIDE
from tuner.report.figures.style import (
    GREY,
    MANY,
    Style,
    finish,
    label,
    logarithmic,
    new_figure,
    note_in_corner,
    say_nothing_yet,
    style_of,
)
from tuner.verdict.attainment_surfaces import Attained, Attainment, Region, Surface

if TYPE_CHECKING:
    import plotly.graph_objects as go

FAINT = 0.16
"""How much of its colour the band of a group has."""
FAINTEST, STRONGEST = 0.12, 0.85
"""How much of its colour a region has: from hardly any difference to all searches against none."""
MARGIN = 0.06
"""Around all corners, as a share of what they span."""
BEYOND = 2.0
"""How far surfaces go on, as a multiple of the last corner's time: beyond any axis."""
LEFT_ENDS, RIGHT_BEGINS = 0.485, 0.515
"""Of two panels, as shares of the width."""
PANELS = ("what searches attain", "where searches of one attain more often")
WRAP = 120
"""Characters of a line of notes."""
MOST = 2
"""Lines of one note."""
LINE = 17
"""Pixels of a line of notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What of the plane is drawn on, a little more than what is shown: surfaces have no ends."""

    left: float
    right: float
    bottom: float
    top: float

    def within(self, point: Point) -> Point:
        """The nearest point in the frame."""
        x, y = point
        return min(max(x, self.left), self.right), min(max(y, self.bottom), self.top)


def attainment_figure(
    attained: Attained,
    *,
    title: str = "",
    clock: str = "time to convergence (s)",
    error: str = "test MQL",
) -> go.Figure:
    """The median surface of each group as a line, in the band from its best to its worst.

    Of one search it is that search's front. Where there are regions, a second panel shows them, in
    the colour of the group whose searches attain more. Times that span a decade have a logarithmic
    axis. What else to know stands above in words.
    """
    figure = new_figure()
    if not attained.groups:
        say_nothing_yet(figure, "nothing has converged yet")
        _finish(figure, attained, title=title, clock=clock, error=error)
        return figure
    if attained.regions:
        figure.update_layout(
            xaxis={"domain": [0, LEFT_ENDS]},
            xaxis2={"domain": [RIGHT_BEGINS, 1], "anchor": "y2"},
            yaxis2={"anchor": "x2", "matches": "y", "showticklabels": False},
        )
    frame = _frame(figure, attained.groups)
    many = len(attained.groups) > MANY
    for index, group in enumerate(attained.groups):
        _band(figure, group, style_of(index), frame, in_legend=not many)
    for index, group in enumerate(attained.groups):
        _surfaces(figure, group, style_of(index), frame)
    if many and any(len(group.surfaces) > 1 for group in attained.groups):
        _key_of_bands(figure)
    if attained.regions:
        _regions(figure, attained, frame)
    _finish(figure, attained, title=title, clock=clock, error=error)
    return figure


def _frame(figure: go.Figure, groups: Sequence[Attainment]) -> Frame:
    """Choose the axes' ranges by all corners; what is drawn on goes on beyond them."""
    corners = [point for group in groups for surface in group.surfaces for point in surface.corners]
    times, errors = [time for time, _ in corners], [mql for _, mql in corners]
    first, last = min(times), max(times)
    if first > 0 and last / first > WIDE:
        figure.update_xaxes(logarithmic(first, last))
    else:
        figure.update_xaxes(range=_around(first, last))
    bottom, top = _around(min(errors), max(errors))
    figure.update_yaxes(range=[bottom, top])
    return Frame(left=first, right=BEYOND * last, bottom=bottom, top=top + (top - bottom))


def _around(low: float, high: float) -> tuple[float, float]:
    margin = MARGIN * ((high - low) or abs(high) or 1.0)
    return low - margin, high + margin


def _path(surface: Surface, frame: Frame) -> tuple[list[float], list[float]]:
    """From the top of the frame over all corners to its right."""
    first, last = surface.corners[0], surface.corners[-1]
    points = [(first[0], frame.top), *surface.corners, (frame.right, last[1])]
    return [x for x, _ in points], [y for _, y in points]


def _steps(surface: Surface, frame: Frame) -> list[Point]:
    """The same with every turn, for an area."""
    xs, ys = _path(surface, frame)
    turns = [(xs[0], ys[0])]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        turns += [(x, turns[-1][1]), (x, y)]
    return turns


def _band(
    figure: go.Figure, group: Attainment, style: Style, frame: Frame, *, in_legend: bool
) -> None:
    """All that some search attains and not every one."""
    if len(group.surfaces) == 1:
        return
    around = [*_steps(group.best, frame), *reversed(_steps(group.worst, frame))]
    figure.add_scatter(
        x=[x for x, _ in around],
        y=[y for _, y in around],
        mode="none",
        fill="toself",
        fillcolor=_rgba(style.colour, FAINT),
        name=f"{label(group.name)}: from some search to every search",
        legendgroup=group.name,
        showlegend=in_legend,
        hoverinfo="skip",
        **_place(1),
    )


def _surfaces(figure: go.Figure, group: Attainment, style: Style, frame: Frame) -> None:
    """The median, which the legend names, and faint both edges of the band."""
    for surface in dict.fromkeys((group.best, group.worst)):
        if surface is not group.median:
            _line(figure, group, surface, style, frame, width=1)
    _line(figure, group, group.median, style, frame, width=2.5)


def _line(
    figure: go.Figure,
    group: Attainment,
    surface: Surface,
    style: Style,
    frame: Frame,
    *,
    width: float,
    panel: int = 1,
) -> None:
    xs, ys = _path(surface, frame)
    of = len(group.surfaces)
    what = f"attained by {surface.searches} of {of} searches" if of > 1 else "front of one search"
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        line={"color": style.colour, "shape": "hv", "width": width, "dash": style.dash},
        name=f"{label(group.name)}: {what}",
        legendgroup=group.name,
        showlegend=surface is group.median and panel == 1,
        hovertemplate="%{x:.3f} s<br>MQL %{y:.4f}",
        **_place(panel),
    )


def _key_of_bands(figure: go.Figure) -> None:
    """Once for all: of many groups a line each is enough."""
    figure.add_scatter(
        x=[None],
        y=[None],
        mode="markers",
        marker={"color": GREY, "symbol": "square", "size": 12, "opacity": 0.4},
        name="band: from some search to every search",
    )


def _regions(figure: go.Figure, attained: Attained, frame: Frame) -> None:
    """The second panel: all rectangles of one difference are one trace."""
    by_difference: dict[float, list[Region]] = {}
    for region in attained.regions:
        by_difference.setdefault(region.difference, []).append(region)
    named = {
        max((d for d in by_difference if d * sign > 0), key=abs, default=None) for sign in (1, -1)
    }
    for difference, regions in sorted(by_difference.items(), reverse=True):
        index = 0 if difference > 0 else 1
        group = attained.groups[index]
        up_to = f"up to {100 * abs(difference):.0f} %"
        share = FAINTEST + (STRONGEST - FAINTEST) * abs(difference)
        xs, ys = _rectangles(regions, frame)
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="none",
            fill="toself",
            fillcolor=_rgba(style_of(index).colour, share),
            name=f"{label(group.name)}: attained by more of its searches ({up_to})",
            legendgroup=group.name,
            showlegend=difference in named,
            hoverinfo="skip",
            **_place(2),
        )
    for index, group in enumerate(attained.groups):
        _line(figure, group, group.median, style_of(index), frame, width=1.5, panel=2)
    for panel, words in enumerate(PANELS, 1):
        figure.add_annotation(
            text=words,
            showarrow=False,
            x=0.5,
            y=1,
            xref="x domain" if panel == 1 else "x2 domain",
            yref="paper",
            yanchor="bottom",
            font={"size": 13},
        )


def _rectangles(
    regions: Sequence[Region], frame: Frame
) -> tuple[list[float | None], list[float | None]]:
    """Corners of each, with a gap between two."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for region in regions:
        (left, low), (right, high) = frame.within(region.low), frame.within(region.high)
        xs += [left, right, right, left, left, None]
        ys += [low, low, high, high, low, None]
    return xs, ys


def _finish(figure: go.Figure, attained: Attained, *, title: str, clock: str, error: str) -> None:
    """The common layout, with room for the notes above."""
    finish(figure, title=title, x=clock, y=error)
    if attained.regions:
        figure.update_layout(yaxis2={"title": None, "ticks": ""})
    lines = [
        line
        for note in attained.notes
        for line in textwrap.wrap(
            note, WRAP, max_lines=MOST, placeholder=" …", break_on_hyphens=False
        )
    ]
    heads = LINE if attained.regions else 0
    if lines:
        text = "<br>".join(map(in_html, lines))
        note_in_corner(figure, text, align="left", yshift=heads + 4)
    top = (50 if title else 20) + heads + LINE * len(lines)
    figure.update_layout(margin={"t": top})


def _place(panel: int) -> dict[str, str]:
    """Whose axes a trace has."""
    return {} if panel == 1 else {"xaxis": "x2", "yaxis": "y2"}


def _rgba(colour: str, share: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {share:.3f})"
