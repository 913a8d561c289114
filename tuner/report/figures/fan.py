"""Fan charts: what was seen of each series, and what is forecast of it, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuner.data.recent_rows import id_column, observed, time_column
from tuner.errors import UsageError, unknown_name
from tuner.report.figures import style
from tuner.report.figures.style import COLOURS, GREY, INK, label
from tuner.training.quantile_loss import symmetric_pairs

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from tuner.data.table import Table
    from tuner.export.saved_model import SavedModel


Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.datetime64]
SIDE_BY_SIDE = 2
PANEL_HEIGHT, HEAD_HEIGHT = 300, 150
LIGHTEST, DARKEST = 0.12, 0.55
"""How much of the colour the widest band has, and the narrowest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fan:
    """One target column of one series: R rows that were seen, T times ahead, Q levels."""

    name: str
    unit: str
    """What the value is: the column's name."""
    seen_times: Times
    seen: Floats
    """(R,), NaN where a cell is empty."""
    times: Times
    levels: tuple[float, ...]
    forecast: Floats
    """(T, Q), ascending along the levels."""
    actual: Floats
    """(T,), what came; NaN where nobody knows yet."""


def fan_figure(fans: Sequence[Fan], *, title: str = "") -> go.Figure:
    """A panel for each fan: what was seen, joined to the median forecast, with a band for each pair
    of levels q and 1 - q, the present marked, and what came where it is known.
    """
    if not fans:
        empty = style.finish(style.new_figure(), title=title, x="", y="")
        return style.say_nothing_yet(empty, "no forecast")
    from plotly.subplots import make_subplots

    columns = min(len(fans), SIDE_BY_SIDE)
    rows = -(-len(fans) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[label(fan.name) for fan in fans] if len(fans) > 1 or not title else None,
        vertical_spacing=0.3 / rows,
        horizontal_spacing=0.1,
    )
    for number, fan in enumerate(fans):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        _draw(figure, fan, place, legend=number == 0)
    style.finish(figure, title=title, x="", y="")
    for number, fan in enumerate(fans):
        place = {"row": number // columns + 1, "col": number % columns + 1}
        figure.update_yaxes(title=label(fan.unit), **place)
    height = size_of(len(fans))[1]
    figure.update_layout(
        height=height,
        margin={"t": 30 + (40 if title else 0)},  # a panel's name stands above it
        legend={"y": -70 / height, "traceorder": "normal"},
        hovermode="x unified",
    )
    return figure


def size_of(fans: int) -> tuple[int, int]:
    """Pixels of a figure of so many panels: width, height."""
    rows = -(-fans // min(max(fans, 1), SIDE_BY_SIDE))
    return (900 if fans == 1 else 1200, HEAD_HEIGHT + PANEL_HEIGHT * rows + 90 * (rows == 1))


def _draw(figure: go.Figure, fan: Fan, place: dict[str, int], *, legend: bool) -> None:
    pairs = symmetric_pairs(fan.levels)
    now = fan.seen_times[-1]
    times = np.concatenate([[now], fan.times])
    common = {"showlegend": legend, **place}
    for number, pair in enumerate(pairs):
        _band(figure, fan, times, pair, fillcolor=_tint(number, len(pairs)), **common)
    seen = {"color": INK, "width": 1.5}
    _line(figure, "seen", fan.seen_times, fan.seen, line=seen, **common)
    in_pairs = {place for pair in pairs for place in pair}
    for number, level in enumerate(fan.levels):
        if number not in in_pairs:
            name = "median forecast" if level == 0.5 else f"quantile {level:g}"  # noqa: PLR2004
            look = {"color": COLOURS[0], "width": 2.5}
            _line(figure, name, times, _joined(fan, number), line=look, **common)
    if np.isfinite(fan.actual).any():
        look = {"color": COLOURS[1], "width": 2, "dash": "dot"}
        came = np.concatenate([fan.seen[-1:], fan.actual])
        _line(figure, "what came", times, came, line=look, **common)
    figure.add_vline(x=now, line={"color": GREY, "width": 1.5, "dash": "dash"}, **place)
    figure.add_annotation(
        x=now,
        y=1,
        yref="y domain",
        text="now",
        showarrow=False,
        xanchor="right",
        yanchor="top",
        font={"color": GREY},
        **place,
    )


def _joined(fan: Fan, number: int) -> Floats:
    """A level's forecast, (1 + T,), which begins at the last value that was seen."""
    return np.concatenate([fan.seen[-1:], fan.forecast[:, number]])


def _band(figure: go.Figure, fan: Fan, times: Times, pair: tuple[int, int], **look: Any) -> None:
    lower, upper = (_joined(fan, number) for number in pair)
    low, high = (fan.levels[number] for number in pair)
    figure.add_scatter(
        x=np.concatenate([times, times[::-1]]),
        y=np.concatenate([upper, lower[::-1]]),
        mode="lines",
        fill="toself",
        line={"color": "white", "width": 0.5},
        name=f"{low:g} to {high:g}",
        legendgroup=f"{low:g}",
        hoverinfo="skip",
        **look,
    )


def _line(figure: go.Figure, name: str, times: Times, values: Floats, **look: Any) -> None:
    hover = "%{y:.4g}"
    figure.add_scatter(
        x=times, y=values, mode="lines", name=name, legendgroup=name, hovertemplate=hover, **look
    )


def _tint(number: int, bands: int) -> str:
    """The colour of a band, from the widest (pale) to the narrowest: its own, not laid over others,
    so that the legend shows what the figure does.
    """
    share = LIGHTEST + (DARKEST - LIGHTEST) * number / max(bands - 1, 1)
    parts = (int(COLOURS[0][at : at + 2], 16) for at in (1, 3, 5))
    red, green, blue = (round(255 - share * (255 - part)) for part in parts)
    return f"rgb({red},{green},{blue})"


# From a model and a table to fan charts: what was seen, what is forecast, and what came.


MOST_PANELS = 24
HORIZONS_SEEN = 3
"""At most so many horizons of the past are drawn: of more, the forecast would be a sliver."""


def fans_of(
    model: SavedModel, frame: pd.DataFrame, forecast: pd.DataFrame, *, columns: Sequence[str] = ()
) -> list[Fan]:
    """A fan for each series and target column of a forecast.

    Args:
        model: what forecast.
        frame: the rows that it was given; those of times that were forecast say what came.
        forecast: what `model.predict` made of them.
        columns: target columns to draw; all where none is named.

    Raises:
        UsageError: an unknown column, or more panels than a figure can show.
    """
    task = model.task
    for name in columns:
        if name not in task.target_columns:
            raise unknown_name("target column", name, task.target_columns)
    wanted = columns or task.target_columns
    found = observed(task, model.series, frame)
    if len(found) * len(wanted) > MOST_PANELS:
        raise UsageError(
            f"the figure would have {len(found) * len(wanted)} panels, one for each series and "
            f"column; at most {MOST_PANELS} fit: choose some with --series and --column"
        )
    several = len(model.series) > 1
    return [
        _fan(model, name, column, rows, forecast, named=several)
        for name, rows in found.items()
        for column in wanted
    ]


def _fan(
    model: SavedModel, series: str, column: str, rows: Table, forecast: pd.DataFrame, *, named: bool
) -> Fan:
    task = model.task
    mine = forecast[(forecast[id_column(task)] == series) & (forecast["column"] == column)]
    times = mine[time_column(task)].to_numpy()
    values = rows.values[:, task.target_columns.index(column)]
    every = np.asarray(rows.times)
    targets = rows.values[:, : len(task.target_columns)]
    known = np.isfinite(targets).any(axis=1) & (every < times[0])
    end = int(np.flatnonzero(known)[-1]) + 1  # what comes before is in order: it was checked
    begin = end - min(task.input_size, HORIZONS_SEEN * task.horizon)
    came = dict(zip(every[end:], values[end:], strict=True))
    return Fan(
        name=f"{series}, {column}" if named else column,
        unit=column,
        seen_times=every[begin:end],
        seen=values[begin:end],
        times=times,
        levels=task.quantiles,
        forecast=mine[[str(level) for level in task.quantiles]].to_numpy(dtype=np.float64),
        actual=np.array([came.get(time, np.nan) for time in times]),
    )
