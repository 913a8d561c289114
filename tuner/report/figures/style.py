"""What all figures share: colours that colour-blind readers tell apart,
never colour alone, and one layout.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.display.text import in_html, shortened
from tuner.spec.pareto import Point

if TYPE_CHECKING:
    import plotly.graph_objects as go

COLOURS = ("#4D95CB", "#B24734", "#00A884", "#B400F0", "#A88F00", "#6C7A89")
"""Told apart by colour-blind readers, and from white ground and from black."""
VARIANTS = ("original", "rmsnorm", "layernorm", "simple", "batchnorm")
"""The built-in ones have a colour each, everywhere."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MANY = 2
"""Beyond so many series with several kinds of marks each, the legend explains the marks once for
all: see `key`."""
SHORT = 0.35
"""Decades: a shorter logarithmic axis has hardly a mark at 1, 1.5, 2, 3, 4, 5, 7."""
LONGEST = 60
"""Characters of a name: a longer one would leave no room to the figure."""
FINE_MARKS = (1, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2, 2.2, 2.4, 2.6, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)
GREY, INK, GRID = "#8A8A8A", "#222222", "#E6E6E6"
BOTH = "#757D87"
"""Ink that is read on white ground and on black."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one series is drawn: told from the others by colour, by symbol and by dash."""

    colour: str
    symbol: str
    dash: str


def style_of(index: int) -> Style:
    """The style of the series number `index`; they repeat after six."""
    return Style(
        COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)], DASHES[index % len(DASHES)]
    )


def looks(variants: Sequence[str]) -> list[Style]:
    """The style of each series, by the names of their variants: one colour a variant in every
    figure; several series of one differ in symbol and dash. One of a user's own has a colour by its
    name, unless another of the figure has that.
    """
    taken = {name: VARIANTS.index(name) for name in variants if name in VARIANTS}
    for name in variants:
        if name not in taken:
            first = zlib.crc32(name.encode()) % len(COLOURS)
            order = [(first + step) % len(COLOURS) for step in range(len(COLOURS))]
            free = [place for place in order if place not in taken.values()]
            taken[name] = (free or order)[0]
    found: list[Style] = []
    for index, name in enumerate(variants):
        place = taken[name]
        again = (place + variants[:index].count(name)) % len(SYMBOLS)
        found.append(Style(COLOURS[place], SYMBOLS[again], DASHES[again]))
    return found


def in_both_themes(figure: go.Figure) -> go.Figure:
    """For a page that has a light and a dark theme: its own ground, and ink that both bear."""
    clear = "rgba(0,0,0,0)"
    ink = {"color": BOTH}
    figure.update_layout(paper_bgcolor=clear, plot_bgcolor=clear, font=ink, title_font=ink)
    grid = "rgba(128,128,128,0.25)"
    figure.update_xaxes(gridcolor=grid)
    figure.update_yaxes(gridcolor=grid)
    figure.for_each_annotation(_in_both)
    figure.for_each_trace(_trace_in_both)
    return figure


def _trace_in_both(trace: Any) -> None:
    if trace.type == "scatter" and trace.marker.color == "white":
        trace.marker.color = "rgba(0,0,0,0)"
    if trace.type == "scatter" and trace.line.color == INK:
        trace.line.color = BOTH


def _in_both(note: Any) -> None:
    note.update(bgcolor=None)
    if note.arrowcolor == INK:
        note.update(arrowcolor=BOTH)


def spread(length: int, most: int) -> list[int]:
    """Which of so many to keep: every one, or evenly spread ones, the first and the last among
    them.
    """
    if length <= most:
        return list(range(length))
    step = (length - 1) / max(most - 1, 1)
    return sorted({round(i * step) for i in range(most)})


def new_figure() -> go.Figure:
    """An empty figure. Plotly takes a moment to import: only who draws waits for it."""
    import plotly.graph_objects as go

    return go.Figure()


def label(text: object) -> str:
    """A name from outside as plotly takes it, which reads HTML everywhere; a very long one is cut
    in its middle.
    """
    return in_html(shortened(text, LONGEST))


def finish(figure: go.Figure, *, x: str, y: str, title: str = "", **layout: Any) -> go.Figure:
    """The common layout: white ground, a thin grid,
    the legend below, axes named with their units.
    """
    axis = {
        "showline": True,
        "linecolor": GREY,
        "ticks": "outside",
        "tickcolor": GREY,
        "gridcolor": GRID,
    }
    figure.update_layout(
        template="plotly_white",
        font={"family": "Helvetica, Arial, DejaVu Sans, sans-serif", "size": 13, "color": INK},
        legend={"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0},
        margin={"l": 70, "r": 20, "t": 20, "b": 60},
        hoverlabel={"align": "left"},
        **layout,
    )
    figure.update_xaxes(title=x, zeroline=False, **axis)
    figure.update_yaxes(title=y, zeroline=False, **axis)
    return titled(figure, title) if title else figure


def titled(figure: go.Figure, title: str) -> go.Figure:
    """With a line above it."""
    line = {"text": title, "x": 0.02, "font": {"size": 17}}
    return figure.update_layout(title=line, margin={"t": 50})


def draw_points(
    figure: go.Figure,
    points: Iterable[Point],
    look: Style,
    *,
    study: str,
    what: str,
    marker: dict[str, Any],
    **more: Any,
) -> None:
    """Marks of one kind of a study, in its colour, called `what` in the legend; with what `more`
    plotly is to draw of them.
    """
    there = list(points)
    figure.add_scatter(
        x=[x for x, _ in there],
        y=[y for _, y in there],
        marker={"color": look.colour, "symbol": look.symbol, **marker},
        name=f"{label(study)}: {what}",
        legendgroup=study,
        **{"mode": "markers"} | more,
    )


def draw_default(figure: go.Figure, at: Point, look: Style, *, study: str, **more: Any) -> None:
    """The default configuration of a study: a star."""
    star = {"size": 17, "symbol": "star", "line": {"color": "black", "width": 1}}
    what = "default hyperparameters"
    draw_points(figure, [at], look, study=study, what=what, marker=star, **more)


def key(
    figure: go.Figure, marks: Sequence[tuple[str, str, dict[str, Any]]], *, named: str = ": front"
) -> None:
    """A legend that says once, in grey, what each kind of mark means; of each series only the
    trace whose name ends with `named` is in it.

    `marks`: the end of the names of traces of a kind, what the legend says of it, and how its mark
    looks. Five series with an entry for each kind would leave more room to the legend than to the
    figure.
    """
    for trace in figure.data:
        trace.showlegend = bool(trace.name) and trace.name.endswith(named)
    for ending, meaning, marker in marks:
        if any(trace.name and ending in trace.name for trace in figure.data):
            figure.add_scatter(
                x=[None], y=[None], mode="markers", marker={"color": GREY} | marker, name=meaning
            )


def logarithmic(low: float, high: float) -> dict[str, Any]:
    """An axis with a logarithmic scale from a little below `low` to a little above `high`, marked
    at round numbers.

    Plotly's own marks on a short logarithmic axis are lone digits, which read as if they were the
    numbers.
    """
    margin = min(max((high / low) ** 0.08, 1.02), 1.15)
    marks = round_numbers(low / margin, high * margin, mantissas=marks_for(low, high))
    return {
        "type": "log",
        "range": [math.log10(low / margin), math.log10(high * margin)],
        "tickvals": marks,
        "ticktext": [f"{mark:g}" for mark in marks],
    }


def marks_for(low: float, high: float) -> Sequence[float]:
    """Mantissas that mark an axis from `low` to `high` often enough, and not too often."""
    decades = math.log10(high / low) if high > low else 0.0
    if decades < SHORT:
        return FINE_MARKS
    if decades < 1:
        return (1, 1.5, 2, 3, 4, 5, 7)
    return (1, 2, 5)


def round_numbers(
    low: float, high: float, *, mantissas: Sequence[float] = (1, 2, 5)
) -> list[float]:
    """All numbers from `low` to `high` that are one of `mantissas` times a power of ten; the
    nearest where none is.
    """
    numbers = [
        float(f"{mantissa}e{exponent}")
        for exponent in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        for mantissa in mantissas
    ]
    return [number for number in numbers if low <= number <= high] or [
        min(numbers, key=lambda n: abs(n - low))
    ]


def note_in_corner(
    figure: go.Figure, text: str, *, right: bool = False, inside: bool = False, **more: Any
) -> None:
    """A small grey line in an upper corner of a figure's frame, above it unless `inside`."""
    figure.add_annotation(
        text=text,
        showarrow=False,
        x=int(right),
        y=1,
        xref="paper",
        yref="paper",
        xanchor="right" if right else "left",
        yanchor="top" if inside else "bottom",
        font={"color": GREY, "size": 12},
        **more,
    )


def say_nothing_yet(figure: go.Figure, sentence: str) -> go.Figure:
    """An empty figure says why it is empty."""
    figure.add_annotation(
        text=sentence,
        showarrow=False,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        font={"size": 15, "color": GREY},
    )
    return figure
