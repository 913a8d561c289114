"""A figure as a picture, drawn by matplotlib: no browser is needed for a file or for a mail.

It draws what our figures are made of (points, lines, bars, areas, notes), and nothing else that
plotly knows.
"""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tuner.errors import TunerError
from tuner.report.figures.style import GREY, GRID, INK

if TYPE_CHECKING:
    import plotly.graph_objects as go

Axes: TypeAlias = Any
Figure: TypeAlias = Any
Transform: TypeAlias = Any
"""Matplotlib's: its types name each mark and setting, which who passes one on cannot."""
DOTS = 100
"""Of an inch: a plotly pixel is one of them."""
POINT = 72 / DOTS
ROW, LETTER, MARK = 20, 6.6, 46
"""Pixels: of a row of the legend, of a letter, and of what stands before an entry's text."""
LEAST = 120
"""Pixels of height that are left to what is drawn."""
MANY_POINTS = 150
"""From so many on, faint marks are dots in a picture and no shapes of their own."""
SYMBOLS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "cross": "P",
    "x": "X",
    "star": "*",
}
DASHES: dict[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dot": (0, (1, 2)),
    "dashdot": (0, (5, 2, 1, 2)),
    "longdash": (0, (9, 2)),
    "longdashdot": (0, (9, 2, 1, 2)),
}
HATCHES = {"": None, "/": "//", ".": "..", "x": "xx", "-": "--", "|": "||"}
NOT_SAID = {"png": ["Software"], "svg": ["Date"], "pdf": ["Creator", "Producer", "CreationDate"]}
"""Of itself, by matplotlib: the same figure is the same file."""
THEME = {INK: "var(--ink)", GRID: "var(--line)", "#ffffff": "var(--ground)"}
"""What a page colours by its theme."""


def check_installed() -> None:
    """Raises TunerError where matplotlib is missing."""
    try:
        import matplotlib as _matplotlib
    except ImportError:
        raise TunerError(
            "pictures need matplotlib: pip install 'tuner[pictures]' (or write .html, which needs "
            "nothing)"
        ) from None
    del _matplotlib


def picture(figure: go.Figure, kind: str, *, width: int, height: int, clear: bool = False) -> bytes:
    """The figure as `png` (two dots each way for a pixel), `svg` or `pdf`; on white ground, unless
    it is `clear`.

    Raises:
        TunerError: matplotlib is missing.
    """
    check_installed()
    import matplotlib as mpl

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "tuner",
        "text.parse_math": False,
        "font.family": ["sans-serif"],
        "font.size": 13 * POINT,
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that no font here has: a reader's may
        drawn = _drawn(figure, width, height)
        into = io.BytesIO()
        dots = DOTS * (2 if kind == "png" else 1)
        drawn.savefig(
            into, format=kind, dpi=dots, transparent=clear, metadata=dict.fromkeys(NOT_SAID[kind])
        )
    return into.getvalue()


def for_page(figure: go.Figure, *, width: int, height: int, says: str) -> str:
    """The figure as part of a page, in the colours of its theme; `says` is for who cannot see it.

    Raises:
        TunerError: matplotlib is missing.
    """
    text = picture(figure, "svg", width=width, height=height, clear=True).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r" (?:width|height)=\"[\d.]+pt\"", "", text, count=2)
    text = re.sub(r'(?<= )(?:d|x|y)="[^"]*"', _to_hundredths, text)
    for colour, theirs in THEME.items():
        text = text.replace(colour.lower(), theirs)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(says)}"', 1)


def _to_hundredths(place: re.Match[str]) -> str:
    """Of a point, which nobody sees: half of a picture's bytes."""
    return re.sub(r"(\.\d\d)\d+", r"\1", place[0])


def _drawn(figure: go.Figure, width: int, height: int) -> Figure:
    from matplotlib.figure import Figure as Paper
    from matplotlib.transforms import Affine2D

    layout = figure.layout
    entries = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    if len(figure.data) == 1 and not figure.data[0].showlegend:
        entries = []
    columns, rows = _grid([_text(trace.name) for trace in entries], width)
    margin, left = layout.margin, _room_on_the_left(figure)
    left, right = min(left, width / 2), 16 + (margin.r or 0)
    bottom, top = 52 + ROW * rows, margin.t or 30
    height = max(height, top + bottom + LEAST)  # long legends make it higher
    drawn: Any = Paper(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    wide, high = (width - left - right) / width, (height - top - bottom) / height
    frame = (left / width, bottom / height, wide, high)
    paper = Affine2D().scale(wide, high).translate(*frame[:2]) + drawn.transFigure
    axes = {}
    for name in _axes_of(figure):
        axes[name] = drawn.add_axes(_within(figure, name, frame))
        _prepare(axes[name], figure, name)
    handles = _traces(axes, figure, entries)
    for name, ax in axes.items():
        _range(ax, figure, name)
    for shape in layout.shapes:
        _line_across(axes[(shape.xref or "x").split()[0][1:]], shape)
    for note in layout.annotations:
        _note(axes, note, paper)
    if handles:
        _legend(drawn, handles, columns, left / width)
    if layout.title.text:
        title = {"size": 17 * POINT, "color": INK}
        drawn.text(0.02, 1 - 14 / height, _text(layout.title.text), va="top", **title)
    return drawn


def _traces(axes: dict[str, Axes], figure: go.Figure, entries: list[Any]) -> list[tuple[Any, str]]:
    """Draw them; of those that are `entries` of the legend what stands there, and its name."""
    bars = [trace for trace in figure.data if trace.type == "bar"]
    handles = []
    for trace in figure.data:
        ax = axes[(trace.xaxis or "x")[1:]]
        is_bar = trace.type == "bar"
        handle = _bars(ax, trace, bars.index(trace), len(bars)) if is_bar else _scatter(ax, trace)
        if trace in entries:
            handles.append((handle, _text(trace.name)))
    return handles


def _legend(drawn: Figure, handles: list[tuple[Any, str]], columns: int, left: float) -> None:
    drawn.legend(
        [handle for handle, _ in handles],
        [name for _, name in handles],
        loc="lower left",
        bbox_to_anchor=(left - 0.01, 0.0),
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize=12.5 * POINT,
        handlelength=1.6,
        columnspacing=1.2,
        borderaxespad=0.2,
    )


def _text(text: str | None) -> str:
    """What plotly reads as HTML."""
    lines = re.sub(r"<br\s*/?>", "\n", text or "")
    return html.unescape(re.sub(r"</?[a-z][^>]*>", "", lines))


def _grid(names: Sequence[str], width: int) -> tuple[int, int]:
    """Columns and rows of the legend."""
    if not names:
        return 1, 0
    columns = max(1, int(width // (MARK + LETTER * max(map(len, names)))))
    columns = min(columns, len(names))
    return columns, math.ceil(len(names) / columns)


def _axes_of(figure: go.Figure) -> list[str]:
    """The pairs of axes that traces are on, by what follows `x` in their names."""
    return list(dict.fromkeys([(trace.xaxis or "x")[1:] for trace in figure.data] or [""]))


def _within(figure: go.Figure, name: str, frame: tuple[float, ...]) -> tuple[float, ...]:
    left, bottom, width, height = frame
    across = figure.layout[f"xaxis{name}"].domain or (0, 1)
    up = figure.layout[f"yaxis{name}"].domain or (0, 1)
    return (
        left + across[0] * width,
        bottom + up[0] * height,
        (across[1] - across[0]) * width,
        (up[1] - up[0]) * height,
    )


def _room_on_the_left(figure: go.Figure) -> float:
    texts = [str(text) for text in figure.layout.yaxis.ticktext or ()]
    texts += [str(y) for trace in figure.data if trace.type == "bar" for y in trace.y]
    return max(float(figure.layout.margin.l or 70), 24 + LETTER * max(map(len, texts), default=0))


def _prepare(ax: Axes, figure: go.Figure, name: str) -> None:
    ax.set_facecolor("none")
    ax.grid(visible=True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    for side in ax.spines.values():
        side.set_color(GREY)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=GREY, labelcolor=INK, labelsize=12 * POINT)
    ax.set_xlabel(_text(figure.layout[f"xaxis{name}"].title.text), color=INK)
    ax.set_ylabel(_text(figure.layout[f"yaxis{name}"].title.text), color=INK)


def _range(ax: Axes, figure: go.Figure, name: str) -> None:
    """What both axes look at, and how they are marked."""
    for which, axis, scale, limits in (
        ("x", ax.xaxis, ax.set_xscale, ax.set_xlim),
        ("y", ax.yaxis, ax.set_yscale, ax.set_ylim),
    ):
        told = figure.layout[f"{which}axis{name}"]
        if told.type == "log":
            scale("log")
        if told.range is not None:
            ends = [10**end for end in told.range] if told.type == "log" else told.range
            limits(*ends)
        if told.tickvals is not None:
            axis.set_ticks(list(told.tickvals), [_text(text) for text in told.ticktext])
            axis.set_ticks([], minor=True)
        if told.tickformat == ".0%":
            axis.set_major_formatter(lambda value, _at: f"{value:.0%}")
        if told.rangemode == "tozero":
            limits(0, None)
        if told.visible is False:
            axis.set_visible(False)
        if told.showgrid is False:
            axis.grid(visible=False)


def _numbers(values: Any) -> list[Any]:
    """With gaps where there is none."""
    return [math.nan if value is None else value for value in (() if values is None else values)]


def _scatter(ax: Axes, trace: Any) -> Any:
    x, y = _numbers(trace.x), _numbers(trace.y)
    opacity = 1.0 if trace.opacity is None else trace.opacity
    handle: Any = None
    if trace.fill == "toself":
        (handle,) = ax.fill(x, y, color=_colour(trace.fillcolor), linewidth=0)
        return handle
    if trace.error_x.array is not None or trace.error_y.array is not None:
        _error_bars(ax, trace, x, y)
    mode = trace.mode or "lines"
    if "lines" in mode:
        (handle,) = ax.plot(
            x,
            y,
            color=_colour(trace.line.color),
            linewidth=(trace.line.width or 2) * POINT,
            linestyle=DASHES[trace.line.dash or "solid"],
            drawstyle="steps-post" if trace.line.shape == "hv" else "default",
            alpha=opacity,
        )
    if "markers" in mode:
        points = _marks(ax, trace, x, y, opacity)
        handle = handle or points
    if "text" in mode:
        ink, look = _colour(trace.textfont.color), {"va": "center", "size": 12 * POINT}
        for across, up, text in zip(x, y, trace.text, strict=True):
            ax.text(across, up, f"  {_text(text)}", color=ink, clip_on=False, **look)
    return handle


def _marks(ax: Axes, trace: Any, x: list[Any], y: list[Any], opacity: float) -> Any:
    marker = trace.marker
    symbols = marker.symbol if isinstance(marker.symbol, tuple | list) else [marker.symbol]
    if len(symbols) > 1:
        for at, symbol in enumerate(symbols):
            found = _one_kind(ax, marker, symbol, x[at : at + 1], y[at : at + 1], opacity)
        return found
    step = max(1, len(x) // marker.maxdisplayed) if marker.maxdisplayed else 1
    return _one_kind(ax, marker, (symbols or ["circle"])[0], x[::step], y[::step], opacity)


def _one_kind(
    ax: Axes, marker: Any, symbol: str | None, x: list[Any], y: list[Any], opacity: float
) -> Any:
    plain = (symbol or "circle").removesuffix("-open")
    size = (marker.size or 6) * POINT * (1.25 if plain == "star" else 1)
    edge = marker.line.color
    ink, look = _colour(marker.color), {}
    if symbol and symbol.endswith("-open"):
        look = {"facecolors": "none", "edgecolors": ink, "linewidths": (marker.line.width or 1.5)}
    else:
        look = {"facecolors": ink, "edgecolors": _colour(edge) if edge else "none"}
        look["linewidths"] = (marker.line.width or 0) * POINT
    opacity *= 1.0 if marker.opacity is None else marker.opacity
    faint = opacity < 1 and len(x) > MANY_POINTS
    there = {"marker": SYMBOLS[plain], "alpha": opacity, "rasterized": faint, "zorder": 3}
    return ax.scatter(x, y, s=size**2, **there, **look)


def _error_bars(ax: Axes, trace: Any, x: list[Any], y: list[Any]) -> None:
    told = trace.error_x if trace.error_x.array is not None else trace.error_y
    both = {}
    for name, bars in (("xerr", trace.error_x), ("yerr", trace.error_y)):
        if bars.array is not None:
            both[name] = [list(bars.arrayminus), list(bars.array)]
    ink = _colour(told.color or trace.marker.color)
    wide = (told.thickness or 2) * POINT
    ax.errorbar(
        x, y, fmt="none", ecolor=ink, elinewidth=wide, capsize=(told.width or 4) / 2, **both
    )


def _bars(ax: Axes, trace: Any, index: int, of: int) -> Any:
    """Horizontal ones, beside those of the other traces."""
    thick, names = 0.8 / of, list(trace.y)
    at = [place - 0.4 + thick * (index + 0.5) for place in range(len(names))]
    shape = trace.marker.pattern.shape or ""
    values = _numbers(trace.x)
    found = ax.barh(
        at,
        values,
        height=thick * 0.92,
        color=_colour(trace.marker.color),
        hatch=HATCHES[shape],
        edgecolor="#ffffff",
        linewidth=0,
    )
    for place, value, text in zip(at, values, trace.text or (), strict=False):
        ax.text(value, place, f" {text}", va="center", size=11 * POINT, color=INK)
    ax.set_yticks(range(len(names)), [_text(name) for name in names])
    ax.grid(visible=False, axis="y")
    return found


def _line_across(ax: Axes, shape: Any) -> None:
    """A line from end to end of one axis."""
    dashes = DASHES[shape.line.dash or "solid"]
    look = {"color": _colour(shape.line.color), "linewidth": (shape.line.width or 1) * POINT}
    if (shape.xref or "").endswith("domain"):
        ax.axhline(shape.y0, linestyle=dashes, **look)
    else:
        ax.axvline(shape.x0, linestyle=dashes, **look)


def _note(axes: dict[str, Axes], note: Any, paper: Transform) -> None:
    """A text at a place of the frame, or of an axis, perhaps with a line or an arrow from it."""
    ax = axes.get((note.xref or "x").split()[0].removeprefix("x").replace("paper", ""))
    ax = ax or next(iter(axes.values()))
    across, up = _place(ax, "x", note), _place(ax, "y", note)
    look: dict[str, Any] = {
        "size": (note.font.size or 13) * POINT,
        "color": _colour(note.font.color or INK),
        "ha": {"left": "left", "right": "right"}.get(note.xanchor or "", "center"),
        "va": {"top": "top", "bottom": "bottom"}.get(note.yanchor or "", "center"),
    }
    if note.showarrow:
        head = {"arrowstyle": "-|>" if note.arrowhead else "-", "color": _colour(note.arrowcolor)}
        line = {"linewidth": (note.arrowwidth or 1) * POINT, "shrinkA": 2}
        arrow = head | line | {"shrinkB": (note.standoff or 0) * POINT}
        tail = _unlogged(ax, "x", note.ax), _unlogged(ax, "y", note.ay)
        ax.annotate(_text(note.text), (across, up), tail, arrowprops=arrow, zorder=4, **look)
        return
    transform = _frame_of(ax, note, paper)
    ax.text(across, up, _text(note.text), transform=transform, clip_on=False, zorder=5, **look)


def _frame_of(ax: Axes, note: Any, paper: Transform) -> Transform:
    from matplotlib.transforms import blended_transform_factory

    known: list[Transform] = []
    for said in (note.xref or "x", note.yref or "y"):
        within = ax.transAxes if said.endswith("domain") else ax.transData
        known.append(paper if said == "paper" else within)
    return blended_transform_factory(*known)


def _place(ax: Axes, which: str, note: Any) -> Any:
    ref, value = note[f"{which}ref"] or which, note[which]
    return value if ref == "paper" or ref.endswith("domain") else _unlogged(ax, which, value)


def _unlogged(ax: Axes, which: str, value: Any) -> Any:
    """Of a logarithmic axis plotly takes logarithms here."""
    return 10**value if (ax.get_xscale() if which == "x" else ax.get_yscale()) == "log" else value


def _colour(colour: str | None) -> Any:
    """As matplotlib takes it."""
    if colour is None:
        return INK
    found = re.fullmatch(r"rgba?\(([^)]*)\)", colour)
    if found is None:
        return "#ffffff" if colour == "white" else colour
    red, green, blue, *alpha = (float(part) for part in found[1].split(","))
    return (red / 255, green / 255, blue / 255, *(alpha or [1.0]))
